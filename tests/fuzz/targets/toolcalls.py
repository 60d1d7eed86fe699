"""Parsers of tool calls: the text in pieces gives what the whole text gives.

An input is a line with a number, which chooses the format and the pieces, then the answer's text.
"""

import itertools
from collections.abc import Iterable
from random import Random

from tapeline.toolcalls import FORMATS, CallFormat, ParsedAnswer
from tests.fuzz._target import Target

_TOOLS = frozenset({"get_weather", "now"})
_CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": [1, 2.5, null]}}'
_ANSWERS = (
    "No tools.",
    f"<tool_call>\n{_CALL}\n</tool_call>",
    f"I look.\n<tool_call>{_CALL}</tool_call>\n<tool_call>{_CALL}</tool_call>",
    _CALL.replace("arguments", "parameters"),
    f"[TOOL_CALLS] [{_CALL}]",
    "[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{}",
    "<think>so</think>Yes.",
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
)
_PIECES = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<think>", "</think>"),
    *(
        "<|channel|>",
        "<|message|>",
        "<|call|>",
        "<|end|>",
        "<|start|>",
        "<|constrain|>json",
        " to=functions.now",
        "final",
    ),
    *("{", "}", "[", "]", ":", ",", ";", '"', "\\", "\\u00e9", '"name"', '"arguments"', '"parameters"', '"now"', "{}"),
    *("é", "🙂", "\n", " ", "null", "1e5", "-", "<", "|", _CALL),
)


def _seeds() -> list[bytes]:
    return [f"{number}\n{text}".encode() for number in range(2 * len(FORMATS)) for text in _ANSWERS]


def _mutate(data: bytes, draw: Random) -> bytes:
    number, _, text = data.decode(errors="replace").partition("\n")
    for _ in range(draw.choice((1, 1, 2, 4))):
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.choice((0, 0, 1, 3, 9)))
        text = text[:start] + draw.choice(("", *_PIECES)) + text[stop:]
    if draw.random() < 0.2:
        number = str(draw.randrange(1000))
    return f"{number}\n{text}".encode()


def _parsed(form: CallFormat, pieces: Iterable[str], streamed: bool) -> ParsedAnswer:
    names = itertools.count()
    parser = form.parser(_TOOLS, lambda: f"id{next(names)}", streamed)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    answer = ParsedAnswer.joined([*deltas, *parser.finish()])
    if parser.calls != len(answer.calls):
        raise AssertionError(f"{parser.calls} calls, and {len(answer.calls)} in the answer")
    return answer


def _run(data: bytes) -> bool:
    head, _, text = data.decode(errors="replace").partition("\n")
    if not head.isascii() or not head.isdigit() or len(head) > 9:
        return False
    form, streamed = FORMATS[int(head) % len(FORMATS)], bool(int(head) // len(FORMATS) % 2)
    whole = _parsed(form, [text], streamed)
    draw = Random(int(head))
    cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(6)))
    pieces = [text[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(text)])]
    for other in (_parsed(form, pieces, streamed), _parsed(form, text, streamed)):
        if other != whole:
            raise AssertionError(f"{form.name}: in pieces {other}, whole {whole}")
    return bool(whole.calls)


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate, headed=True)
