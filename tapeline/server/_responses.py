"""/v1/responses, as OpenAI's API has it."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._chat import chat_job
from tapeline.server._chat_form import AnswerReader
from tapeline.server._events import to_json
from tapeline.server._fields import SamplingFields
from tapeline.server._generation import JSON, Job, respond_events
from tapeline.server._readers import Anything, Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import DefaultKinds, Kinds, Record, Unheeded, fields_of, option, read_record, required
from tapeline.server._requests import ChatRequest
from tapeline.server._response_store import StoredResponse
from tapeline.server._service import service_of
from tapeline.toolcalls import AnswerDelta, CallDelta, ReasoningDelta, TextDelta, ToolPlan

_NOTHING: Final[Mapping[str, str]] = {}
_ACCEPTED: Final = "Accepted without effect."
_HOSTED: Final = "tools are functions of the client; leave it out"
_NO_FILES: Final = {"input_file": "send its text as a part of type input_text", "input_audio": "send text"}
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputText:
    """Part that is text."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("input_text", "output_text", "text")), "Kind of the part.")
    text: str = required(Text(), "The text.")
    annotations: Any = option(Anything(), _ACCEPTED)
    logprobs: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRefusal:
    """Part in which the model refused to answer."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("refusal",)), "Kind of the part.")
    refusal: str = required(Text(), "Answer of the model.")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputImage:
    """Part that is a picture."""

    REFUSED: ClassVar[Mapping[str, str]] = {"file_id": "send a data URI as image_url"}

    type: str = required(Choice(("input_image",)), "Kind of the part.")
    image_url: str = required(Text(1), "The picture as a data URI; nothing is fetched.")
    detail: str = option(Unheeded(Choice(("auto", "low", "high")), ("auto",)), "As auto.", "auto")


_PARTS: Final = Kinds(
    {
        "input_text": InputText,
        "output_text": InputText,
        "text": InputText,
        "refusal": InputRefusal,
        "input_image": InputImage,
    },
    _NO_FILES,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputMessage:
    """Item that is a message."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = option(Choice(("message",)), "Kind of the item.", "message")
    role: str = required(Choice(("system", "developer", "user", "assistant")), "Who says it.")
    content: str | tuple[Any, ...] = required(Either((Text(), Items(_PARTS))), "Text, or a list of parts.")
    id: Any = option(Anything(), _ACCEPTED)
    status: Any = option(Anything(), _ACCEPTED)
    phase: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputCall:
    """Item that is a call of a function."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("function_call",)), "Kind of the item.")
    call_id: str = required(Text(1), "Name of the call.")
    name: str = required(Text(1), "Name of the function.")
    arguments: str = required(Text(), "Arguments, as JSON in a string.")
    id: Any = option(Anything(), _ACCEPTED)
    status: Any = option(Anything(), _ACCEPTED)
    namespace: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputResult:
    """Item that is the result of a call."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("function_call_output",)), "Kind of the item.")
    call_id: str = required(Text(1), "Name of the call.")
    output: str | tuple[Any, ...] = required(Either((Text(), Items(Record(InputText)))), "The result.")
    id: Any = option(Anything(), _ACCEPTED)
    status: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningPart:
    """Part of an item of reasoning."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("reasoning_text", "summary_text")), "Kind of the part.")
    text: str = required(Text(), "The text.")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputReasoning:
    """Item of reasoning."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("reasoning",)), "Kind of the item.")
    content: tuple[ReasoningPart, ...] | None = option(Items(Record(ReasoningPart)), "The reasoning.")
    summary: tuple[ReasoningPart, ...] | None = option(Items(Record(ReasoningPart)), "Used if there is no content.")
    id: Any = option(Anything(), _ACCEPTED)
    status: Any = option(Anything(), _ACCEPTED)
    encrypted_content: Any = option(Anything(), _ACCEPTED)


_ITEMS: Final = DefaultKinds(
    Kinds(
        {
            "message": InputMessage,
            "function_call": InputCall,
            "function_call_output": InputResult,
            "reasoning": InputReasoning,
        },
        {
            "item_reference": "send the item itself, or previous_response_id",
            **dict.fromkeys(("web_search_call", "file_search_call", "computer_call", "mcp_call"), _HOSTED),
        },
    ),
    "message",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionTool:
    """Function that the model may call."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("function",)), "Only function: nothing is fetched or run.")
    name: str = required(Text(1), "Name of the function.")
    description: str | None = option(Text(), "Description that the model sees.")
    parameters: Mapping[str, Any] | None = option(Table(), "JSON schema of the arguments.")
    strict: bool | None = option(Flag(), "Whether arguments must satisfy the schema.")


_TOOLS: Final = Kinds(
    {"function": FunctionTool},
    dict.fromkeys(("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "custom"), _HOSTED),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedTool:
    """Choice of one function."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("function",)), "Kind of the tool.")
    name: str = required(Text(1), "Name of the function.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFormat:
    """Format of the answer."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("text", "json_object", "json_schema")), "Kind of the format.")
    name: str | None = option(Text(), "Name of the schema; it is not shown to the model.")
    description: str | None = option(Text(), "Purpose of the format; it is not shown to the model.")
    schema: Any = option(Either((Table(), Flag())), "With json_schema: the schema.")
    strict: bool | None = option(Flag(), "Answers always satisfy the schema.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """Settings of the text."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    format: TextFormat | None = option(Record(TextFormat), "Format of the answer.")
    verbosity: str | None = option(Unheeded(Text()), "Named in x-ignored-fields.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningConfig:
    """Settings of the reasoning."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    effort: str | None = option(Choice(_EFFORTS), "The same as reasoning_effort of a conversation.")
    summary: Any = option(Anything(), "Accepted without effect: reasoning is sent as it is.")
    generate_summary: Any = option(Anything(), "Accepted without effect: reasoning is sent as it is.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponsesRequest(SamplingFields):
    """Body of /v1/responses."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "conversation": "give previous_response_id",
        "prompt": "give input and instructions",
    }

    model: str | None = option(Text(), "Name of a served model; may be left out if there is only one.")
    input: str | tuple[Any, ...] = required(Either((Text(1), Items(_ITEMS, 1))), "Text, or a list of items.")
    instructions: str | None = option(Text(), "System message; that of an earlier response is not kept.")
    previous_response_id: str | None = option(Text(1), "Response that this continues; it was stored.")
    store: bool = option(Flag(), "Keep the response for previous_response_id; the last ones are kept.", True)
    stream: bool = option(Flag(), "Send the answer in pieces, as server-sent events.", False)
    max_output_tokens: int | None = option(Whole(1), "Largest number of new tokens.")
    temperature: float | None = option(Number(0, 100), "Divisor of the logits; 0 takes the likeliest token.")
    top_p: float | None = option(Number(0, 1), "Only the likeliest tokens that make up p.")
    tools: tuple[FunctionTool, ...] | None = option(Items(_TOOLS), "Functions that the model may call.")
    tool_choice: str | NamedTool | None = option(
        Either((Choice(("none", "auto", "required")), Record(NamedTool))), "Whether to call one, or which."
    )
    parallel_tool_calls: bool = option(Flag(), "Whether an answer may have several calls.", True)
    text: TextConfig | None = option(Record(TextConfig), "Format of the answer.")
    reasoning: ReasoningConfig | None = option(Record(ReasoningConfig), "Settings of the reasoning.")
    truncation: str | None = option(Choice(("disabled", "auto")), "auto keeps the last tokens that fit.")
    background: bool = option(Choice((False,)), "Only false.", False)
    metadata: Mapping[str, str] | None = option(Table(Text(), 16), "Sent back with the response.")
    user: str | None = option(Text(), "Name of the end user; users are served in turn.")
    safety_identifier: str | None = option(Text(), "The same as user.")
    include: Any = option(Anything(), _ACCEPTED)
    service_tier: str | None = option(Text(), _ACCEPTED)
    prompt_cache_key: str | None = option(Text(), _ACCEPTED)
    prompt_cache_retention: Any = option(Anything(), _ACCEPTED)
    prompt_cache_options: Any = option(Anything(), _ACCEPTED)
    stream_options: Any = option(Anything(), _ACCEPTED)
    max_tool_calls: int | None = option(Unheeded(Whole(1)), "Named in x-ignored-fields.")
    top_logprobs: int | None = option(Unheeded(Whole(0, 20), (0,)), "Named in x-ignored-fields.")


async def responses(request: Request) -> Response:
    """Answers a conversation, as OpenAI's API of responses has it."""
    service = service_of(request)
    fields = await service.read(request, ResponsesRequest)
    owner = request.scope["state"]["client"](None)
    said = _chat_messages(fields.input if isinstance(fields.input, tuple) else [_user(fields.input)])
    if fields.previous_response_id is not None:
        said = [*service.responses.get(fields.previous_response_id, owner).messages, *said]
    job, plan = await chat_job(request, read_record(ChatRequest, _chat_body(fields, said)))
    form = ResponseForm(fields, job, plan)

    def keep(body: Mapping[str, Any]) -> None:
        if fields.store:
            messages = [*said, *_chat_messages(form.items())]
            service.responses.put(StoredResponse(body["id"], owner, messages, body))

    form.on_end = keep
    return await respond_events(request, job, form)


async def retrieve_response(request: Request) -> Response:
    """Returns a response that was stored."""
    stored = service_of(request).responses.get(request.path_params["response"], request.scope["state"]["client"](None))
    return Response(to_json(stored.body), media_type=JSON)


async def delete_response(request: Request) -> Response:
    """Forgets a response that was stored."""
    name = request.path_params["response"]
    service_of(request).responses.delete(name, request.scope["state"]["client"](None))
    return Response(to_json({"id": name, "object": "response", "deleted": True}), media_type=JSON)


def _user(text: str) -> InputMessage:
    return InputMessage(role="user", content=text)


def _chat_body(fields: ResponsesRequest, said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the body of the same request to /v1/chat/completions."""
    system = [] if fields.instructions is None else [{"role": "system", "content": fields.instructions}]
    body: dict[str, Any] = {"messages": [*system, *said], "max_tokens": fields.max_output_tokens}
    same = ("model", "temperature", "top_p", "stream", "parallel_tool_calls", "user", "safety_identifier")
    body |= {name: getattr(fields, name) for name in (*same, *fields_of(SamplingFields))}
    for name in ("stop", "stop_token_ids"):
        body[name] = list(body[name]) if isinstance(body[name], tuple) else body[name]
    if fields.tools:
        body["tools"] = [_chat_tool(tool) for tool in fields.tools]
    if fields.tool_choice is not None:
        choice = fields.tool_choice
        named = {"type": "function", "function": {"name": choice.name}} if isinstance(choice, NamedTool) else choice
        body["tool_choice"] = named
    form = None if fields.text is None else fields.text.format
    if form is not None and form.type != "text":
        schema = {"schema": form.schema} if form.type == "json_schema" else None
        body["response_format"] = {"type": form.type, "json_schema": schema}
    if fields.reasoning is not None:
        body["reasoning_effort"] = fields.reasoning.effort
    if fields.truncation == "auto":
        body["truncate_prompt_tokens"] = -1
    return body


def _chat_tool(tool: FunctionTool) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict")
    function = {name: value for name in names if (value := getattr(tool, name)) is not None}
    return {"type": "function", "function": function}


def _chat_messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns items as messages of a conversation; reasoning and calls are of the assistant's message around them."""
    said: list[dict[str, Any]] = []
    thought: list[str] = []
    for item in items:
        match item:
            case InputReasoning():
                thought += [part.text for part in item.content or item.summary or ()]
                continue
            case InputResult():
                output = item.output if isinstance(item.output, str) else "\n".join(part.text for part in item.output)
                said.append({"role": "tool", "tool_call_id": item.call_id, "content": output})
            case InputCall():
                function = {"name": item.name, "arguments": item.arguments}
                call = {"id": item.call_id, "type": "function", "function": function}
                if not (said and said[-1]["role"] == "assistant"):
                    said.append({"role": "assistant", "content": None})
                said[-1].setdefault("tool_calls", []).append(call)
            case InputMessage():
                said.append({"role": item.role, "content": _content(item.content)})
            case _:
                pass
        if thought and said[-1]["role"] == "assistant":
            said[-1]["reasoning_content"] = "\n".join(thought)
        thought = []
    return said


def _content(content: str | Sequence[Any]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        match part:
            case InputImage():
                parts.append({"type": "image_url", "image_url": {"url": part.image_url}})
            case InputRefusal():
                parts.append({"type": "text", "text": part.refusal})
            case _:
                parts.append({"type": "text", "text": part.text})
    return parts


@dataclass(slots=True)
class _Open:
    """Item of the answer that grows.

    Attributes:
        body: the item.
        text: its text, or the arguments of its call.
    """

    body: dict[str, Any]
    text: list[str] = field(default_factory=list[str])


class ResponseForm:
    """Form of an answer in OpenAI's API of responses; it has the protocol ``EventForm``.

    Args:
        fields: fields of the request.
        job: work for the engine.
        plan: how calls of tools are read out of the answer.

    Attributes:
        on_end: is called with the whole response.
    """

    def __init__(self, fields: ResponsesRequest, job: Job[ChatRequest], plan: ToolPlan | None) -> None:
        self._fields: Final = fields
        self._reader: Final = AnswerReader(job, plan)
        self._id: Final = f"resp_{job.request_id}"
        self._created: Final = int(time.time())
        self._model: Final = job.model
        self._sampling: Final = job.fields.sampling(job.model.defaults, job.model.vocabulary)
        self._done: Final[list[dict[str, Any]]] = []
        self._open: _Open | None = None
        self._events = 0
        self._reasoning_tokens = 0
        self.on_end: Callable[[Mapping[str, Any]], object] = _nothing

    def items(self) -> list[Any]:
        """Returns the items of the answer as those of a request."""
        return [_ITEMS.read(item, "output") for item in self._done]

    def begin(self) -> Iterator[Mapping[str, Any]]:
        """Yields the beginning of the response."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._body("in_progress", None))

    def events(self, answer: Answer, delta: Delta) -> Iterator[Mapping[str, Any]]:
        """Yields the events of a part of the answer."""
        self._reader.read(answer, delta)
        for one in self._reader.take():
            if isinstance(one, ReasoningDelta):
                self._reasoning_tokens = answer.text.tokens  # reasoning comes first
            yield from self._delta(one)

    def end(self, answer: Answer, usage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the end of the last item and of the response."""
        yield from self._close("incomplete" if answer.finish_reason == "length" else "completed")
        body = self.body(answer, usage)
        self.on_end(body)
        yield self._event(f"response.{body['status']}", response=body)

    def body(self, answer: Answer, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the whole response."""
        return self._body("incomplete" if answer.finish_reason == "length" else "completed", usage)

    def _body(self, status: str, usage: Mapping[str, Any] | None) -> dict[str, Any]:
        fields = self._fields
        choice = fields.tool_choice
        form = {"type": "text"} if fields.text is None or fields.text.format is None else _given(fields.text.format)
        effort = None if fields.reasoning is None else fields.reasoning.effort
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "model": self._model.name,
            "output": list(self._done),
            "parallel_tool_calls": fields.parallel_tool_calls,
            "previous_response_id": fields.previous_response_id,
            "reasoning": {"effort": effort, "summary": None},
            "store": fields.store,
            "temperature": self._sampling.temperature,
            "text": {"format": form},
            "tool_choice": _given(choice) if isinstance(choice, NamedTool) else choice or "auto",
            "tools": [{"parameters": None, "strict": None, **_given(tool)} for tool in fields.tools or ()],
            "top_p": self._sampling.top_p,
            "truncation": fields.truncation or "disabled",
            "usage": None if usage is None else self._usage(usage),
            "user": fields.user,
            "metadata": fields.metadata or {},
        }

    def _delta(self, delta: AnswerDelta) -> Iterator[Mapping[str, Any]]:
        match delta:
            case TextDelta(text):
                part = {"type": "output_text", "text": "", "annotations": []}
                yield from self._begin("message", {"role": "assistant", "content": []}, part)
                yield self._more("response.output_text.delta", text, content_index=0, logprobs=[])
            case ReasoningDelta(text):
                part = {"type": "reasoning_text", "text": ""}
                yield from self._begin("reasoning", {"summary": [], "content": []}, part)
                yield self._more("response.reasoning_text.delta", text, content_index=0)
            case CallDelta():
                if delta.id is not None:
                    yield from self._close("completed")
                    body = {"call_id": delta.id, "name": delta.name, "arguments": ""}
                    yield from self._begin("function_call", body, None)
                if delta.arguments:
                    yield self._more("response.function_call_arguments.delta", delta.arguments)

    def _begin(self, kind: str, body: dict[str, Any], part: dict[str, Any] | None) -> Iterator[Mapping[str, Any]]:
        """Yields the beginning of an item and of its part, unless the last item is of this kind."""
        if self._open is not None and self._open.body["type"] == kind:
            return
        yield from self._close("completed")
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        item = {"type": kind, "id": f"{prefix}_{secrets.token_hex(16)}", "status": "in_progress", **body}
        self._open = _Open(item)
        yield self._event("response.output_item.added", output_index=len(self._done), item=dict(item))
        if part is not None:
            yield self._placed("response.content_part.added", content_index=0, part=part)

    def _close(self, status: str) -> Iterator[Mapping[str, Any]]:
        """Yields the end of the item that is open."""
        if self._open is None:
            return
        item, text = self._open.body, "".join(self._open.text)
        if item["type"] == "function_call":
            item["arguments"] = text
            yield self._placed("response.function_call_arguments.done", arguments=text, name=item["name"])
        else:
            said = item["type"] == "message"
            kind = "output_text" if said else "reasoning_text"
            part: dict[str, Any] = {"type": kind, "text": text, **({"annotations": []} if said else {})}
            more = {"logprobs": []} if said else {}
            yield self._placed(f"response.{kind}.done", content_index=0, text=text, **more)
            yield self._placed("response.content_part.done", content_index=0, part=part)
            item["content"] = [part]
        item["status"] = status
        yield self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = None

    def _more(self, kind: str, text: str, **more: Any) -> Mapping[str, Any]:
        if self._open is not None:
            self._open.text.append(text)
        return self._placed(kind, delta=text, **more)

    def _placed(self, kind: str, **more: Any) -> Mapping[str, Any]:
        item = "" if self._open is None else self._open.body["id"]
        return self._event(kind, item_id=item, output_index=len(self._done), **more)

    def _usage(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": usage["total_tokens"],
        }

    def _event(self, kind: str, **more: Any) -> Mapping[str, Any]:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **more}


def _nothing(_: Mapping[str, Any]) -> None:
    pass


def _given(record: Any) -> dict[str, Any]:
    """Returns the fields of a record that are not None."""
    return {name: value for name in fields_of(type(record)) if (value := getattr(record, name)) is not None}
