"""/v1/messages and /v1/messages/count_tokens, as Anthropic's API has them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response

from lang_core import json_value
from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._chat import chat_job
from tapeline.server._chat_form import AnswerReader
from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON, Job, respond_events
from tapeline.server._messages import CACHED
from tapeline.server._readers import Anything, Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import DefaultKinds, Kinds, Record, Unheeded, option, read_record, required
from tapeline.server._requests import ChatRequest
from tapeline.server._service import service_of
from tapeline.toolcalls import AnswerDelta, CallDelta, ReasoningDelta, TextDelta, ToolPlan, closed_json

_NOTHING: Final[Mapping[str, str]] = {}
_ACCEPTED: Final = "Accepted without effect."
_STOPS: Final = 16
_NO_FILES: Final = {
    "document": "send its text as a block of type text",
    "search_result": "send its text as a block of type text",
    "server_tool_use": "tools are functions of the client",
    "web_search_tool_result": "tools are functions of the client",
    "container_upload": "send its text as a block of type text",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextBlock:
    """Block of text."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("text",)), "Kind of the block.")
    text: str = required(Text(), "The text.")
    citations: Any = option(Anything(), _ACCEPTED)
    cache_control: Any = option(Anything(), CACHED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSource:
    """Source of a picture."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("base64",)), "Only base64: nothing is fetched.")
    media_type: str = required(Text(1), "Type of the picture, such as image/png.")
    data: str = required(Text(1), "The picture in base64.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBlock:
    """Block that is a picture."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("image",)), "Kind of the block.")
    source: ImageSource = required(Record(ImageSource), "The picture.")
    cache_control: Any = option(Anything(), CACHED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingBlock:
    """Block of an assistant's thinking."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("thinking",)), "Kind of the block.")
    thinking: str = required(Text(), "The thinking.")
    signature: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class RedactedBlock:
    """Block of thinking that cannot be read."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("redacted_thinking",)), "Kind of the block; it has no effect.")
    data: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUseBlock:
    """Block of a call of a tool."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("tool_use",)), "Kind of the block.")
    id: str = required(Text(1), "Name of the call.")
    name: str = required(Text(1), "Name of the tool.")
    input: Mapping[str, Any] = required(Table(), "Arguments.")
    caller: Any = option(Anything(), _ACCEPTED)
    cache_control: Any = option(Anything(), CACHED)


_RESULT_PARTS: Final = Kinds({"text": TextBlock}, {"image": "send text", **_NO_FILES})


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultBlock:
    """Block of a tool's result."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("tool_result",)), "Kind of the block.")
    tool_use_id: str = required(Text(1), "Name of the call.")
    content: str | tuple[TextBlock, ...] | None = option(Either((Text(), Items(_RESULT_PARTS))), "The result.")
    is_error: bool = option(Flag(), "Whether the call failed; the content says why.", False)
    cache_control: Any = option(Anything(), CACHED)


_BLOCKS: Final = Kinds(
    {
        "text": TextBlock,
        "image": ImageBlock,
        "tool_use": ToolUseBlock,
        "tool_result": ToolResultBlock,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedBlock,
    },
    _NO_FILES,
)
_SYSTEM: Final = Either((Text(), Items(Record(TextBlock))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Message of a conversation."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    role: str = required(Choice(("user", "assistant", "system")), "Who says it.")
    content: str | tuple[Any, ...] = required(Either((Text(), Items(_BLOCKS))), "Text, or a list of blocks.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesTool:
    """Function that the model may call."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = option(Choice(("custom",)), "Only custom: tools are functions of the client.", "custom")
    name: str = required(Text(1), "Name of the function.")
    description: str | None = option(Text(), "Description that the model sees.")
    input_schema: Mapping[str, Any] = required(Table(), "JSON schema of the arguments.")
    strict: bool | None = option(Flag(), "Whether arguments must satisfy the schema.")
    cache_control: Any = option(Anything(), CACHED)


_TOOLS: Final = DefaultKinds(Kinds({"custom": MessagesTool}, {}), "custom")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesToolChoice:
    """Choice of tools."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("auto", "any", "tool", "none")), "Whether to call a tool.")
    name: str | None = option(Text(1), "With tool: the tool.")
    disable_parallel_tool_use: bool = option(Flag(), "Whether an answer has one call at most.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingConfig:
    """Thinking before the answer."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("enabled", "disabled", "adaptive")), "Whether the model thinks.")
    budget_tokens: int | None = option(Whole(0), "Largest number of tokens of thinking.")
    display: Any = option(Anything(), _ACCEPTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFormat:
    """Format of the answer."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    type: str = required(Choice(("json_schema",)), "Kind of the format.")
    schema: Any = required(Either((Table(), Flag())), "JSON schema of the answer.")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig:
    """Settings of the answer."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    format: OutputFormat | None = option(Record(OutputFormat), "Format of the answer.")
    effort: str | None = option(Choice(("low", "medium", "high", "xhigh", "max")), "The same as reasoning_effort.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """Facts about the request."""

    REFUSED: ClassVar[Mapping[str, str]] = _NOTHING

    user_id: str | None = option(Text(), "Name of the end user.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountRequest:
    """Body of /v1/messages/count_tokens."""

    REFUSED: ClassVar[Mapping[str, str]] = {"mcp_servers": "nothing is fetched; give tools"}

    model: str | None = option(Text(), "Name of a served model; may be left out if there is only one.")
    messages: tuple[Message, ...] = required(Items(Record(Message), 1), "Messages so far.")
    system: str | tuple[TextBlock, ...] | None = option(_SYSTEM, "System message.")
    tools: tuple[MessagesTool, ...] | None = option(Items(_TOOLS), "Functions that the model may call.")
    tool_choice: MessagesToolChoice | None = option(Record(MessagesToolChoice), "Whether to call a tool, or which.")
    thinking: ThinkingConfig | None = option(Record(ThinkingConfig), "Thinking before the answer.")
    output_config: OutputConfig | None = option(Record(OutputConfig), "Format and effort of the answer.")
    output_format: OutputFormat | None = option(Record(OutputFormat), "The same as output_config.format.")
    cache_control: Any = option(Anything(), CACHED)


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesRequest(CountRequest):
    """Body of /v1/messages."""

    REFUSED: ClassVar[Mapping[str, str]] = CountRequest.REFUSED

    max_tokens: int = required(Whole(1), "Largest number of new tokens.")
    stream: bool = option(Flag(), "Send the answer in pieces, as server-sent events.", False)
    stop_sequences: tuple[str, ...] = option(Items(Text(), 0, _STOPS), "Strings that end the answer.", ())
    temperature: float | None = option(Number(0, 100), "Divisor of the logits; 0 takes the likeliest token.")
    top_p: float | None = option(Number(0, 1), "Only the likeliest tokens that make up p.")
    top_k: int | None = option(Whole(-1), "Only the k likeliest tokens.")
    metadata: Metadata | None = option(Record(Metadata), "Facts about the request.")
    service_tier: str | None = option(Text(), "Accepted without effect: all requests are served alike.")
    inference_geo: str | None = option(Unheeded(Text()), "Named in x-ignored-fields.")


async def messages(request: Request) -> Response:
    """Answers a conversation, as Anthropic's API has it."""
    fields = await service_of(request).read(request, MessagesRequest)
    job, plan = await chat_job(request, read_record(ChatRequest, _chat_body(fields)), capped=True)
    return await respond_events(request, job, MessagesForm(job, plan))


async def count_tokens(request: Request) -> Response:
    """Counts the tokens of a conversation."""
    fields = await service_of(request).read(request, CountRequest)
    chat = read_record(ChatRequest, {**_chat_body(fields), "max_tokens": 1})
    job, _ = await chat_job(request, chat)
    return Response(to_json({"input_tokens": job.prompt_tokens}), media_type=JSON)


def _chat_body(fields: CountRequest) -> dict[str, Any]:
    """Returns the body of the same request to /v1/chat/completions."""
    said = [one for index, message in enumerate(fields.messages) for one in _chat_messages(message, index)]
    if fields.system:
        said.insert(0, {"role": "system", "content": _plain(fields.system)})
    body: dict[str, Any] = {"model": fields.model, "messages": said}
    if said[-1]["role"] == "assistant" and not said[-1].get("tool_calls"):  # the model goes on with it
        body |= {"continue_final_message": True}
    if fields.tools:
        body["tools"] = [_chat_tool(tool) for tool in fields.tools]
    if fields.tool_choice is not None:
        body |= _chat_choice(fields.tool_choice)
    body |= _chat_thinking(fields.thinking)
    config = fields.output_config
    form = fields.output_format if config is None or config.format is None else config.format
    if form is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": form.schema}}
    if config is not None and config.effort is not None:
        body["reasoning_effort"] = config.effort
    if isinstance(fields, MessagesRequest):
        body |= {name: getattr(fields, name) for name in ("max_tokens", "temperature", "top_p", "top_k", "stream")}
        body["stop"] = list(fields.stop_sequences)
        body["user"] = None if fields.metadata is None else fields.metadata.user_id
    return body


def _chat_messages(message: Message, index: int) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for number, block in enumerate(message.content):
        where = f"messages[{index}].content[{number}]"
        needed = "user" if isinstance(block, ToolResultBlock | ImageBlock) else "assistant"
        if not isinstance(block, TextBlock) and message.role != needed:
            raise RequestError(f"{where}: goes with the role {needed}, not {message.role}", param=where)
        match block:
            case TextBlock():
                parts.append({"type": "text", "text": block.text})
            case ImageBlock():
                url = f"data:{block.source.media_type};base64,{block.source.data}"
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            case ToolResultBlock():
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _plain(block.content or "")}
            case _:
                pass
    if parts or calls or thoughts or message.role == "assistant":
        thought = {"reasoning_content": "\n".join(thoughts)} if thoughts else {}
        yield {"role": message.role, "content": parts, **thought, **({"tool_calls": calls} if calls else {})}


def _plain(content: str | tuple[TextBlock, ...]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _chat_tool(tool: MessagesTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    strict = {} if tool.strict is None else {"strict": tool.strict}
    return {"type": "function", "function": {**{k: v for k, v in function.items() if v is not None}, **strict}}


def _chat_choice(choice: MessagesToolChoice) -> dict[str, Any]:
    if (choice.type == "tool") != (choice.name is not None):
        raise RequestError("tool_choice.name: goes with the type tool, which needs it", param="tool_choice.name")
    named = {"type": "function", "function": {"name": choice.name}}
    values = {"auto": "auto", "any": "required", "none": "none", "tool": named}
    return {"tool_choice": values[choice.type], "parallel_tool_calls": not choice.disable_parallel_tool_use}


def _chat_thinking(thinking: ThinkingConfig | None) -> dict[str, Any]:
    if thinking is None or thinking.type == "adaptive":
        return {}
    if thinking.type == "disabled":
        return {"enable_thinking": False}
    return {"enable_thinking": True, "thinking_token_budget": thinking.budget_tokens}


class MessagesForm:
    """Form of an answer in Anthropic's API; it has the protocol ``EventForm``.

    Args:
        job: work of the request.
        plan: how calls of tools are read out of the answer.
    """

    def __init__(self, job: Job[ChatRequest], plan: ToolPlan | None) -> None:
        self._reader: Final = AnswerReader(job, plan)
        self._prompt: Final = job.prompt_tokens
        self._most: Final = job.fields.new_tokens or 1
        self._head: Final = {
            "id": f"msg_{job.request_id}",
            "type": "message",
            "role": "assistant",
            "model": job.model.name,
        }
        self._blocks: Final[list[dict[str, Any]]] = []
        self._arguments = ""  # of the call that is the last block

    def begin(self) -> Iterator[Mapping[str, Any]]:
        """Yields the beginning of the message."""
        usage = {"input_tokens": self._prompt, "output_tokens": 0}
        message = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": message}

    def events(self, answer: Answer, delta: Delta) -> Iterator[Mapping[str, Any]]:
        """Yields the events of a part of the answer."""
        self._reader.read(answer, delta)
        for one in self._reader.take():
            yield from self._delta(one)

    def end(self, answer: Answer, usage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the end of the last block and of the message."""
        yield from self._close()
        yield {"type": "message_delta", "delta": self._stop(answer), "usage": _usage(usage)}
        yield {"type": "message_stop"}

    def body(self, answer: Answer, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the whole message."""
        return {**self._head, "content": self._blocks, **self._stop(answer), "usage": _usage(usage)}

    def _stop(self, answer: Answer) -> dict[str, Any]:
        if answer.stop is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop}
        reason = "tool_use" if self._reader.calls else "end_turn"
        if answer.finish_reason == "length":
            reason = "max_tokens" if answer.text.tokens >= self._most else "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": None}

    def _delta(self, delta: AnswerDelta) -> Iterator[Mapping[str, Any]]:
        match delta:
            case TextDelta(text):
                yield from self._begin("text", {"type": "text", "text": ""})
                self._blocks[-1]["text"] += text
                yield self._more({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self._blocks[-1]["thinking"] += text
                yield self._more({"type": "thinking_delta", "thinking": text})
            case CallDelta():
                if delta.id is not None:
                    block = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
                    yield from self._begin(None, block)
                self._arguments += delta.arguments
                if delta.arguments:
                    yield self._more({"type": "input_json_delta", "partial_json": delta.arguments})

    def _begin(self, kind: str | None, block: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the beginning of a block, unless the last one is of this kind."""
        if self._blocks and self._blocks[-1]["type"] == kind:
            return
        yield from self._close()
        self._blocks.append(dict(block))
        yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}

    def _close(self) -> Iterator[Mapping[str, Any]]:
        if not self._blocks:
            return
        if self._blocks[-1]["type"] == "tool_use":
            self._blocks[-1]["input"] = _input(self._arguments)
            self._arguments = ""
        yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _more(self, delta: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}


def _input(arguments: str) -> Any:
    """Returns the arguments of a call; of one that was cut off, those that came."""
    try:
        return json_value(arguments or "{}", nonfinite=True)
    except ValueError:
        return closed_json(arguments) or {}


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage["completion_tokens"],
    }
