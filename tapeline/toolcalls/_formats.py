"""Families of models by how they call tools, found from their chat templates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lang_core import checked_choices
from tapeline.grammar import LarkGrammar
from tapeline.text import ChatTemplate
from tapeline.toolcalls import _block_parser as blocks
from tapeline.toolcalls import _grammars as grammars
from tapeline.toolcalls import _harmony_parser as harmony
from tapeline.toolcalls._harmony_parser import HarmonyParser
from tapeline.toolcalls._json_parser import JsonCallParser, JsonMarks
from tapeline.toolcalls._parser import AnswerParser, NewId, ToolNames, long_id, short_id

_HERMES: Final = JsonMarks(opens=("<tool_call>",), closes=("</tool_call>",))
_LLAMA: Final = JsonMarks(opens=("<|python_tag|>",), separators=(";",), bare=True)
_MISTRAL: Final = JsonMarks(opens=("[TOOL_CALLS]",), list_open="[", separators=(",",), closes=("]",))
_GRANITE: Final = JsonMarks(opens=("<|tool_call|>",), list_open="[", separators=(",",), closes=("]",))
_MISTRAL_NAMES: Final = JsonMarks(
    opens=("[TOOL_CALLS]",), list_open="[", separators=(",",), closes=("]",), arguments="[ARGS]", call_id="[CALL_ID]"
)


@checked_choices
@dataclass(frozen=True, slots=True)
class CallFormat:
    """Form in which a family of models calls tools.

    Attributes:
        name: name of the family.
        marks: special tokens that its parser must see in the text.
        ends: tokens that end an answer beside those of the template.
        structured: whether answers without tools have marks too.
        parser: makes a parser of tool names, a maker of names of calls, and whether arguments are streamed.
        grammar: makes the grammar of calls, of whether one is demanded and whether several may be made.
        new_id: makes names of calls.
    """

    name: str
    marks: tuple[str, ...]
    ends: tuple[str, ...]
    structured: bool
    parser: Callable[[ToolNames, NewId, bool], AnswerParser]
    grammar: Callable[[grammars.CallGrammar, bool, bool], LarkGrammar]
    new_id: NewId


def _json_format(
    name: str,
    marks: JsonMarks,
    grammar: Callable[[grammars.CallGrammar, bool, bool], LarkGrammar],
    new_id: NewId = long_id,
    ends: tuple[str, ...] = (),
) -> CallFormat:
    all_marks = (*marks.opens, *marks.closes, marks.arguments, marks.call_id)
    kept = tuple(mark for mark in all_marks if len(mark) > 1)  # a bracket is text

    def parser(tools: ToolNames, make: NewId, streamed: bool) -> AnswerParser:
        return JsonCallParser(marks, tools, make, streamed)

    return CallFormat(name, kept, ends, False, parser, grammar, new_id)


HERMES: Final = _json_format("hermes", _HERMES, grammars.hermes)
LLAMA: Final = _json_format("llama3", _LLAMA, grammars.llama, ends=("<|eom_id|>",))
MISTRAL: Final = _json_format("mistral", _MISTRAL, grammars.mistral, short_id)
MISTRAL_NAMES: Final = _json_format("mistral-args", _MISTRAL_NAMES, grammars.mistral_names, short_id)
GPT_OSS: Final = CallFormat(
    "gpt-oss", harmony.MARKS, (harmony.CALL, harmony.RETURN), True, HarmonyParser, grammars.gpt_oss, long_id
)

GRANITE: Final = _json_format("granite", _GRANITE, grammars.granite)


def _block_format(
    name: str, marks: blocks.BlockMarks, grammar: Callable[[grammars.CallGrammar, bool, bool], LarkGrammar]
) -> CallFormat:
    def parser(tools: ToolNames, make: NewId, streamed: bool) -> AnswerParser:
        return blocks.BlockCallParser(marks, tools, make, streamed)

    return CallFormat(name, marks.tokens, (), False, parser, grammar, long_id)


QWEN_CODER: Final = _block_format("qwen3-coder", blocks.QWEN_CODER, grammars.elements(grammars.QWEN_CODER))
SEED: Final = _block_format("seed-oss", blocks.SEED, grammars.elements(grammars.SEED))
GLM: Final = _block_format("glm", blocks.GLM, grammars.elements(grammars.GLM))
MINIMAX: Final = _block_format("minimax", blocks.MINIMAX, grammars.elements(grammars.MINIMAX))
KIMI: Final = _block_format("kimi", blocks.KIMI, grammars.kimi)
DEEPSEEK: Final = _block_format("deepseek", blocks.DEEPSEEK, grammars.deepseek)
DEEPSEEK_FENCED: Final = _block_format("deepseek-fenced", blocks.DEEPSEEK, grammars.deepseek_fenced)
LFM2: Final = _block_format("lfm2", blocks.LFM2, grammars.lfm2)

FORMATS: Final = (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMES,
    GPT_OSS,
    GRANITE,
    QWEN_CODER,
    SEED,
    GLM,
    MINIMAX,
    KIMI,
    DEEPSEEK,
    DEEPSEEK_FENCED,
    LFM2,
)
"""Forms of tool calls that answers are searched for."""

# Marks that only one family's templates have, in the order in which they are looked for.
_SIGNS: Final = (
    ("<|tool_calls_section_begin|>", KIMI),
    ("<|tool_call_start|>", LFM2),
    ("<minimax:tool_call>", MINIMAX),
    ("<seed:tool_call>", SEED),
    ("<function=", QWEN_CODER),
    ("<arg_key>", GLM),
    ("<|tool_call|>", GRANITE),
)
# Templates with calls in another language, whose marks are otherwise like those of Hermes.
_OTHERS: Final = ("<parameter=", "<invoke", "<tool_calls>")


def find_format(template: ChatTemplate) -> CallFormat | None:
    """Returns the form of calls in a template; None if the template has none that is known."""
    if template.mentions(harmony.CHANNEL) and template.mentions(harmony.MESSAGE):
        return GPT_OSS
    if template.mentions("[TOOL_CALLS]"):
        return MISTRAL_NAMES if template.mentions("[ARGS]") else MISTRAL
    if template.mentions("<\uff5ctool\u2581calls\u2581begin\uff5c>"):
        return DEEPSEEK_FENCED if template.mentions("```json") else DEEPSEEK
    known = next((form for sign, form in _SIGNS if template.mentions(sign)), None)
    if known is not None:
        return known
    if any(template.mentions(mark) for mark in _OTHERS):
        return None
    if template.mentions("<tool_call>"):
        return HERMES
    llama = template.mentions("<|python_tag|>") or template.mentions("Environment: ipython")
    return LLAMA if llama and template.mentions("parameters") else None
