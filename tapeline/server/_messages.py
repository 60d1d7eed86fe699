"""Messages of a conversation, as the API has them and as templates take them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from lang_core import json_value
from tapeline.server._errors import RequestError
from tapeline.server._readers import Anything, Choice, Either, Items, Table, Text, Whole
from tapeline.server._records import Kinds, Record, Unheeded, option, required
from tapeline.server._values import joined
from tapeline.toolcalls import closed_json

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_OTHER_PARTS: Final = {
    "input_audio": "send sound to /v1/audio/transcriptions, and the transcript as a part of type text",
    "audio_url": "nothing that a request names is fetched; send sound to /v1/audio/transcriptions",
    "video_url": "send parts of type text or image_url",
    "file": "send its text as a part of type text",
}
CACHED: Final = "Accepted without effect: prefixes are shared by content."
"""Help of fields that mark prefixes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPart:
    """Part of a message's content."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("text", "input_text", "output_text")), "Kind of the part.")
    text: str = required(Text(), "The text.")
    annotations: Any = option(Anything(), "Accepted without effect.")
    cache_control: Any = option(Anything(), CACHED)
    prompt_cache_breakpoint: Any = option(Anything(), CACHED)


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalPart:
    """Part of an assistant's content: the model refused to answer."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("refusal",)), "Kind of the part.")
    refusal: str = required(Text(), "Answer of the model.")

    @property
    def text(self) -> str:
        """Text that the model said."""
        return self.refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class ThinkingPart:
    """Part of an assistant's content: reasoning of the model."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("thinking",)), "Kind of the part.")
    thinking: str = required(Text(), "The reasoning.")
    signature: Any = option(Anything(), "Accepted without effect.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageUrl:
    """Picture of a part."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    url: str = required(Text(1), "The picture as a data URI, such as data:image/png;base64,..; nothing is fetched.")
    detail: str = option(
        Unheeded(Choice(("auto", "low", "high")), ("auto",)),
        "As auto: the model's preprocessor says how a picture is seen.",
        "auto",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagePart:
    """Part of a message's content that is a picture."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    type: str = required(Choice(("image_url",)), "Kind of the part.")
    image_url: ImageUrl = required(Record(ImageUrl), "The picture.")
    cache_control: Any = option(Anything(), CACHED)
    prompt_cache_breakpoint: Any = option(Anything(), CACHED)


_PARTS: Final = Kinds(
    {
        "text": TextPart,
        "image_url": ImagePart,
        "input_text": TextPart,
        "output_text": TextPart,
        "refusal": RefusalPart,
        "thinking": ThinkingPart,
    },
    _OTHER_PARTS,
)
Part = TextPart | RefusalPart | ThinkingPart | ImagePart


@dataclass(frozen=True, kw_only=True, slots=True)
class CalledFunction:
    """Function that an assistant called."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    name: str = required(Text(1), "Name of the function.")
    arguments: str | Mapping[str, Any] = option(
        Either((Text(), Table())), "Arguments, as JSON in a string or as an object.", ""
    )
    parsed_arguments: Any = option(Anything(), "Accepted without effect.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """Call of a tool that an assistant made."""

    REFUSED: ClassVar[Mapping[str, str]] = {"custom": "tools are functions; leave the field out"}

    id: str = option(Text(), "Name of the call, which its answer repeats.", "")
    type: str = option(Choice(("function",)), "Kind of the tool.", "function")
    index: int | None = option(Whole(0), "Accepted without effect: calls stand in order.")
    function: CalledFunction = required(Record(CalledFunction), "Function that was called.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatMessage:
    """Message of a conversation."""

    REFUSED: ClassVar[Mapping[str, str]] = {"function_call": "give tool_calls"}

    role: str = required(Choice(_ROLES), "Who says it.")
    content: str | tuple[Part, ...] | None = option(
        Either((Text(), Items(_PARTS))), "Content: text, or a list of parts of type text and image_url."
    )
    name: str | None = option(Text(), "Name of who says it; templates that know it show it.")
    tool_calls: tuple[ToolCall, ...] | None = option(Items(Record(ToolCall)), "Of an assistant: calls that it made.")
    tool_call_id: str | None = option(Text(), "Of a tool: the call that this answers.")
    reasoning_content: str | None = option(
        Text(), "Of an assistant: its reasoning; templates that know it show it to the model."
    )
    reasoning: str | None = option(Text(), "The same as reasoning_content.")
    refusal: str | None = option(Text(), "Of an assistant: text that stands for content that is left out.")
    id: Any = option(Anything(), "Accepted without effect.")
    annotations: Any = option(Anything(), "Accepted without effect.")
    parsed: Any = option(Anything(), "Accepted without effect.")
    cache_control: Any = option(Anything(), CACHED)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the content; none if it is text."""
        return () if self.content is None or isinstance(self.content, str) else self.content

    @property
    def has_pictures(self) -> bool:
        """True if a part is a picture."""
        return any(isinstance(part, ImagePart) for part in self.parts)

    @property
    def text(self) -> str:
        """Text of the content; its parts are lines."""
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            return self.refusal or ""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart | RefusalPart))

    @property
    def thought(self) -> str | None:
        """Reasoning of an assistant; None for none."""
        parts = "\n".join(part.thinking for part in self.parts if isinstance(part, ThinkingPart))
        return self.reasoning_content or self.reasoning or parts or None

    @property
    def for_template(self) -> str | list[dict[str, str]]:
        """Content as templates take it: text, or parts if there are pictures."""
        if not self.has_pictures:
            return self.text
        return [
            {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
            for part in self.parts
            if not isinstance(part, ThinkingPart)
        ]


def template_messages(messages: Sequence[ChatMessage], *, developers: bool) -> list[dict[str, Any]]:
    """Returns messages as templates take them.

    Args:
        messages: the conversation.
        developers: whether the template knows the role developer; if it does not, that is system.

    Raises:
        RequestError: a message lacks what its role needs.
    """
    return [_template_message(one, joined("messages", index), developers) for index, one in enumerate(messages)]


def _template_message(message: ChatMessage, path: str, developers: bool) -> dict[str, Any]:
    _check(message, path)
    role = "system" if message.role == "developer" and not developers else message.role
    named = {"name": message.name, "tool_call_id": message.tool_call_id}
    fields: dict[str, Any] = {"role": role, "content": message.for_template}
    if message.role == "assistant" and message.thought is not None:
        fields |= {"reasoning_content": message.thought, "thinking": message.thought}  # gpt-oss has the second name
    fields |= {name: value for name, value in named.items() if value is not None}
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        fields["tool_calls"] = [_template_call(call, f"{path}.tool_calls[{index}]") for index, call in calls]
    return fields


def _template_call(call: ToolCall, path: str) -> dict[str, Any]:
    """Returns a call with its arguments as an object: templates write it in the model's own form.

    Arguments that ``max_tokens`` cut off are closed, because clients send back this server's messages.
    """
    arguments: Any = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json_value(arguments.strip() or "{}", nonfinite=True)
        except ValueError as error:
            closed = closed_json(arguments)
            if closed is None:
                where = f"{path}.function.arguments"
                raise RequestError(f"{where}: expected JSON in a string ({error})", param=where) from error
            arguments = closed
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _check(message: ChatMessage, path: str) -> None:
    if message.content is None and message.role not in ("assistant", "tool"):
        raise RequestError(f"{path}.content: this field is required: what is said", param=f"{path}.content")
    if message.has_pictures and message.role != "user":
        where = f"{path}.content"
        raise RequestError(f"{where}: pictures go with the role user, not {message.role}", param=where)
    for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, name) and message.role != role:
            where = f"{path}.{name}"
            raise RequestError(f"{where}: goes with the role {role}, not {message.role}", param=where)
