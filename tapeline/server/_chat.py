"""/v1/chat/completions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lang_core import InputError, checked_choices
from tapeline.grammar import GrammarSpec, LarkGrammar
from tapeline.server._chat_form import ChatForm
from tapeline.server._compiling import FormatOrigin, bounds_numbers, compiled
from tapeline.server._errors import RequestError
from tapeline.server._formats import AnswerFormat
from tapeline.server._generation import Job, respond
from tapeline.server._model import ChatPrompt, TextModel
from tapeline.server._options import ServerOptions
from tapeline.server._paths import without_paths
from tapeline.server._requests import ChatRequest
from tapeline.server._schemas import client_schema
from tapeline.server._service import Service, in_thread, model_of, service_of
from tapeline.server._thinking import ThinkingPlan, thinking_plan
from tapeline.toolcalls import ToolPlan


async def chat_completions(request: Request) -> Response:
    """Answers a conversation."""
    fields = await service_of(request).read(request, ChatRequest)
    job, plan = await chat_job(request, fields)
    return await respond(request, job, ChatForm(job.model, job, plan))


@checked_choices
async def chat_job(
    request: Request, fields: ChatRequest, *, capped: bool = False
) -> tuple[Job[ChatRequest], ToolPlan | None]:
    """Returns the engine's job for a conversation, and the plan of its tools.

    Args:
        request: the request.
        fields: its fields.
        capped: True takes more new tokens than fit into the context.

    Raises:
        RequestError: a field contradicts another one, or does not go with the model.
    """
    service = service_of(request)
    fields.check()
    model = await model_of(request, service.models.text_model, fields.model)
    model.engine.check_room(fields.n)
    thinking = thinking_plan(model, fields)
    service.ignore(request, thinking.ignored)
    async with service.turn(request):
        prepared = await in_thread(_prepare, model, fields, thinking, service)
    service.loosen(request, prepared.loosened)
    state = request.scope["state"]
    job = Job(
        model=model,
        fields=fields,
        prompts=[prepared.prompt.token_ids],
        pictures=prepared.prompt.pictures,
        max_new_tokens=None,
        ends=prepared.ends,
        logprobs=fields.alternatives,
        prompt_logprobs=fields.prompt_logprobs,
        starts=[0],
        keep=frozenset() if prepared.plan is None else prepared.plan.keep,
        parsed=prepared.plan is not None and prepared.plan.parses,
        thinking=thinking.limit,
        capped=capped,
        client=state["client"](fields.end_user),
        cache_salt=state["cache_salt"],
        request_id=state["request_id"],
        seconds=service.options.request_seconds,
    )
    job.check()
    constraints = await compiled(
        prepared.spec,
        model,
        fields.n,
        prepared.ends,
        service.options,
        service.compiling,
        state["client"](None),
        state["cache_salt"],
        prepared.origin,
    )
    job = replace(job, constraints=constraints, bounded=bounds_numbers(prepared.spec))
    return job, prepared.plan


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Request that is ready for the engine.

    Attributes:
        prompt: the conversation.
        plan: plan of its tools; None without a template.
        ends: tokens that end an answer.
        spec: form of the answers; None for free text.
        origin: place of the form in the request.
        loosened: keywords of schemas that the answers need not satisfy.
    """

    prompt: ChatPrompt
    plan: ToolPlan | None
    ends: frozenset[int]
    spec: GrammarSpec | None
    origin: FormatOrigin
    loosened: Sequence[str]


def _prepare(model: TextModel, fields: ChatRequest, thinking: ThinkingPlan, service: Service) -> _Prepared:
    options = service.options
    form = fields.format()
    loosened = list[str]() if form is None else [f"{form.param}{place}" for place in form.loosened]
    plan = _plan(model, fields, options, form, loosened)
    tools = None if plan is None else plan.tools
    prompt = model.chat_prompt(
        fields.messages,
        service.pixels,
        thinking.variables,
        tools=tools,
        add_generation_prompt=fields.add_generation_prompt is not False,
        continued=fields.continue_final_message,
        most=model.kept_tokens(fields.truncate_prompt_tokens, fields.new_tokens),
    )
    if prompt.pictures and fields.prompt_logprobs is not None:
        raise RequestError("prompt_logprobs: not supported with pictures; leave the field out", param="prompt_logprobs")
    ends = model.chat_ends | (frozenset() if plan is None else plan.ends)
    if plan is not None and plan.grammar is not None:
        places = {"response_format": "" if form is None else form.param, **plan.schemas}
        origin = FormatOrigin(param="tools", schemas=places)
        return _Prepared(prompt, plan, ends, plan.grammar, origin, loosened)
    if form is None:
        return _Prepared(prompt, plan, ends, None, FormatOrigin(param=""), loosened)
    return _Prepared(prompt, plan, ends, form.spec, FormatOrigin.of(form), loosened)


def _plan(
    model: TextModel, fields: ChatRequest, options: ServerOptions, form: AnswerFormat | None, loosened: list[str]
) -> ToolPlan | None:
    """Returns the plan of a request's tools; adds to ``loosened`` the keywords that their calls need not satisfy.

    Raises:
        RequestError: there are too many, one is too large or wrong, or the model takes none.
    """
    tools = fields.tools or ()

    def adapt(schema: Any) -> Any:
        translated = client_schema(schema)
        loosened.extend(f"tools[].function.parameters{place}" for place in translated.loosened)
        return translated.schema

    if len(tools) > options.max_tools:
        raise RequestError(f"tools: expected at most {options.max_tools}; found {len(tools)}", param="tools")
    for index, tool in enumerate(tools):
        if len(json.dumps(tool)) > options.max_schema_bytes:
            where = f"tools[{index}]"
            raise RequestError(f"{where}: expected at most {options.max_schema_bytes} bytes: shorten it", param=where)
    if model.tools is None:
        return None  # chat_prompt says why
    try:
        spec = None if form is None or fields.tool_choice == "none" or not tools else form.spec
        if isinstance(spec, LarkGrammar):
            raise RequestError(f"{form.param if form else ''}: a grammar does not go with tools: leave out one of them")
        return model.tools.plan(tools, fields.tool_choice, parallel=fields.parallel_tool_calls, form=spec, adapt=adapt)
    except InputError as error:
        raise RequestError(without_paths(str(error)), param=str(error).partition(":")[0]) from error
