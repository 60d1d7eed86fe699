"""Bounds of tokenizer files, checked before the native tokenizers library reads them.

The library trusts a file: an id of 2^31 makes it ask for gigabytes and end the process, a token of two million letters
overflows its stack, a regular expression takes as long as it likes. Neither is an error that Python could catch.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lang_core import LARGE_JSON_BOUNDS, CheckpointError, JsonError, json_value

MOST_ID: Final = (1 << 24) - 1
"""Largest id of a token, and largest integer of a tokenizer.json: the library makes tables of that many entries."""
MOST_TOKENS: Final = 1 << 22
"""Most tokens of a vocabulary, and most merges."""
MOST_LETTERS: Final = 1 << 24
"""Most letters of all tokens of a vocabulary."""
LONGEST_TOKEN: Final = 2048
"""Most letters of a token."""
LONGEST_TEXT: Final = 1000
"""Most letters of a text that a step puts into another text."""
MOST_PIECES: Final = 100
"""Most pieces of a template, and most steps of a sequence."""
MOST_GROWTH: Final = 64
"""Most letters that replacements make of one letter."""
LONGEST_PATTERN: Final = 4096
"""Most letters of a regular expression."""

_COPY: Final = "copy it again from the model's source"
# Integers that count tokens of a text or letters of a word: the library compares with them, and makes nothing of them.
_COUNTS: Final = frozenset({"max_length", "stride", "max_input_chars_per_word"})
_MOST_COUNT: Final = (1 << 64) - 1
_OFTEN: Final = 16  # repetitions; a group that is repeated no more often is tried in few ways
_HEAD: Final = re.compile(r"\((?:\?(?:[a-z-]*:|[a-z-]+\)|<?[=!]|>|<\w+>|#[^)]*\)))?")
_NAMED: Final = re.compile(r"\\[pPxu]\{[^}]*\}")
_REPEATED: Final = re.compile(r"(\*|\+|\?|\{(\d*)(,?)(\d*)\})[?+]?")
# Patterns of published tokenizers that repeat a group with repetitions, of which each can match in one way alone.
_IN_USE: Final = frozenset(
    {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+"
        r"[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",  # EXAONE 4 MoE
    }
)


def check_tokenizer_json(text: str, path: str) -> dict[str, Any]:
    """Checks the text of a tokenizer.json; returns its object.

    Raises:
        CheckpointError: the text is not JSON, or a value exceeds its bound: names the field, the value and the bound.
    """
    try:
        state = json_value(text, LARGE_JSON_BOUNDS, unique=True)
    except JsonError as error:
        raise CheckpointError(f"{path} is damaged ({error}): {_COPY}") from None
    if not isinstance(state, dict):
        raise _error(path, "the file", f"a JSON {type(state).__name__}", "an object")
    model = state.get("model")
    if isinstance(model, dict):
        _check_model(model, path)
    added = state.get("added_tokens")
    if isinstance(added, list):
        check_tokens((entry.get("content") for entry in added if isinstance(entry, dict)), path, "added_tokens")
    _check_tree({**state, "model": None}, path)
    for name in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        growth = _growth(state.get(name))
        if growth > MOST_GROWTH:
            raise _error(path, name, f"replacements that make {growth} letters of one", f"{MOST_GROWTH} at most")
    return state


def check_tokens(tokens: Iterable[Any], path: str, field: str) -> None:
    """Checks number and lengths of tokens; values other than texts are left to the library.

    Raises:
        CheckpointError: there are too many, or they are too long.
    """
    tokens = list(tokens)
    texts = tokens if set(map(type, tokens)) <= {str} else [token for token in tokens if isinstance(token, str)]
    lengths = list(map(len, texts))
    longest, letters = max(lengths, default=0), sum(lengths)
    if longest > LONGEST_TOKEN:
        raise _error(path, field, f"a token of {longest} letters", f"{LONGEST_TOKEN} at most")
    if len(tokens) > MOST_TOKENS:
        raise _error(path, field, f"{len(tokens)} tokens", f"{MOST_TOKENS} at most")
    if letters > MOST_LETTERS:
        raise _error(path, field, f"{letters} letters in all tokens", f"{MOST_LETTERS} at most")


def check_vocabulary(vocabulary: Mapping[str, Any], path: str, field: str) -> None:
    """Checks tokens and ids of a vocabulary.

    Raises:
        CheckpointError: as ``check_tokens``, or an id is beyond its bound.
    """
    check_tokens(vocabulary, path, field)
    numbers = vocabulary.values()
    if set(map(type, numbers)) <= {int} and min(numbers, default=0) >= 0 and max(numbers, default=0) <= MOST_ID:
        return
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number <= MOST_ID:
            raise _error(path, f"{field}.{token:.40}", f"the id {number!r:.40}", f"an integer from 0 to {MOST_ID}")


def check_pattern(pattern: str, path: str, field: str) -> None:
    """Checks a regular expression that the library matches by backtracking (Oniguruma).

    A repeated group that holds a repetition, or alternatives that begin alike, can take time that doubles with each
    letter. The library ends one search after ten million steps, but a text has a search at each letter.

    Raises:
        CheckpointError: it is too long, or repeats such a group and is none of the patterns in use.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise _error(path, field, f"a pattern of {len(pattern)} letters", f"{LONGEST_PATTERN} at most")
    if pattern not in _IN_USE and _is_explosive(pattern):
        raise _error(
            path,
            field,
            f"the pattern {pattern!r:.200}, which repeats a group that holds repetitions or alternatives",
            "a pattern whose time is bounded",
        )


def check_character_map(stored: bytes, path: str, field: str) -> None:
    """Checks SentencePiece's map of characters: the size of its table, then the table, then texts.

    Raises:
        CheckpointError: the size is not that of a table within the map; the library would ask for as much memory.
    """
    size = int.from_bytes(stored[:4], "little")
    if len(stored) < 4 or size % 4 or size < 4 or 4 + size > len(stored):
        raise _error(
            path,
            field,
            f"a map of {len(stored)} bytes with a table of {size}",
            "SentencePiece's map of characters, with its table in it",
        )


def _check_model(model: Mapping[str, Any], path: str) -> None:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        check_vocabulary(vocabulary, path, "model.vocab")
    elif isinstance(vocabulary, list):
        check_tokens((entry[0] for entry in vocabulary if isinstance(entry, list) and entry), path, "model.vocab")
    merges = model.get("merges")
    if isinstance(merges, list):
        if len(merges) > MOST_TOKENS:
            raise _error(path, "model.merges", f"{len(merges)} merges", f"{MOST_TOKENS} at most")
        longest = max((len(merge) for merge in merges if isinstance(merge, str)), default=0)
        if longest > 2 * LONGEST_TOKEN + 1:
            raise _error(path, "model.merges", f"a merge of {longest} letters", f"{2 * LONGEST_TOKEN + 1} at most")
        check_tokens((part for merge in merges if isinstance(merge, list) for part in merge[:2]), path, "model.merges")
    _check_tree({name: value for name, value in model.items() if name not in ("vocab", "merges")}, path, "model")


def _check_tree(value: Any, path: str, field: str = "") -> None:
    """Checks integers, texts, patterns and lists of everything but vocabularies.

    It nests at most as deep as JSON may.
    """
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        place = f"{field}.{name}" if field else str(name)
        if isinstance(inner, dict):
            _check_object(inner, path, place)
            _check_tree(inner, path, place)
        elif isinstance(inner, list):
            if place != "added_tokens" and len(inner) > MOST_PIECES:
                raise _error(path, place, f"a list of {len(inner)}", f"{MOST_PIECES} entries at most")
            _check_tree(inner, path, place)
        elif isinstance(inner, str):
            if len(inner) > LONGEST_TEXT and name not in ("precompiled_charsmap", "Regex", "content"):
                raise _error(path, place, f"a text of {len(inner)} letters", f"{LONGEST_TEXT} at most")
        elif type(inner) is int:
            most = _MOST_COUNT if name in _COUNTS else MOST_ID
            if not 0 <= inner <= most:
                raise _error(path, place, str(inner), f"an integer from 0 to {most}")


def _check_object(step: Mapping[str, Any], path: str, place: str) -> None:
    """Checks the fields of one object together."""
    pattern = step.get("Regex")
    if isinstance(pattern, str):
        check_pattern(pattern, path, f"{place}.Regex")
    stored = step.get("precompiled_charsmap")
    if isinstance(stored, str):
        try:
            decoded = base64.b64decode(stored, validate=True)
        except (binascii.Error, ValueError):
            raise _error(path, f"{place}.precompiled_charsmap", "no base64", "a map of characters in base64") from None
        check_character_map(decoded, path, f"{place}.precompiled_charsmap")
    if step.get("type") == "FixedLength" and step.get("length") == 0:
        raise _error(path, f"{place}.length", "0", "an integer from 1")
    if step.get("type") == "Strip" and not _strips_little(step):
        raise _error(path, place, f"start {step.get('start')}, stop {step.get('stop')}", f"{LONGEST_TEXT} at most")
    if step.get("pad_to_multiple_of") == 0:
        raise _error(path, f"{place}.pad_to_multiple_of", "0", "an integer from 1")
    if place == "truncation" and step.get("max_length", 0) and step.get("stride", 0):
        length, stride = step["max_length"], step["stride"]
        if type(length) is int and type(stride) is int and stride >= length:
            raise _error(path, f"{place}.stride", str(stride), f"an integer below max_length, {length}")
    ids, tokens = step.get("ids"), step.get("tokens")
    if isinstance(ids, list) and isinstance(tokens, list) and len(ids) != len(tokens):
        raise _error(path, place, f"{len(ids)} ids and {len(tokens)} tokens", "a token for each id")


def _strips_little(step: Mapping[str, Any]) -> bool:
    ends = [step.get(name) for name in ("start", "stop")]
    return all(not isinstance(end, int) or end <= LONGEST_TEXT for end in ends)


def _growth(step: Any) -> int:
    """Returns the most letters that the replacements of a step, and of the steps in it, make of one letter."""
    if isinstance(step, list):
        growth = 1
        for inner in step:
            growth = min(growth * _growth(inner), MOST_LETTERS)
        return growth
    if not isinstance(step, dict):
        return 1
    if step.get("type") == "Replace":
        content, pattern = step.get("content"), step.get("pattern")
        searched = pattern.get("String") if isinstance(pattern, dict) else None
        least = max(1, len(searched)) if isinstance(searched, str) else 1
        return max(1, len(content) // least) if isinstance(content, str) else 1
    return _growth([inner for inner in step.values() if isinstance(inner, dict | list)])


def _is_explosive(pattern: str) -> bool:
    """Returns whether a pattern repeats, without an end, a group that can match a text in several ways.

    Such a group holds a repetition without an end, or alternatives of which two can begin with the same letter.
    """
    opened: list[tuple[bool, list[str]]] = []  # of each open group: whether it holds a repetition, first letters
    position, begins = 0, False
    while position < len(pattern):
        end = _atom_end(pattern, position)
        atom = pattern[position:end]
        if atom == "(":
            head = _HEAD.match(pattern, position)
            end = position + 1 if head is None else head.end()
            if not pattern[position:end].endswith(")"):
                opened.append((False, []))
            begins = True
        elif atom == "|":
            begins = True
            if opened:
                opened[-1][1].append("|")
        elif atom == ")" and opened:
            repeats, firsts = opened.pop()
            endless, end = _repetition(pattern, end)
            if endless and (repeats or _begin_alike(firsts)):
                return True
            if opened:
                opened[-1] = (opened[-1][0] or repeats or endless, [*opened[-1][1], *(["("] if begins else [])])
            begins = False
        else:
            endless, end = _repetition(pattern, end)
            if opened:
                firsts = [*opened[-1][1], *([atom] if begins else [])]
                opened[-1] = (opened[-1][0] or endless, firsts)
            begins = False
        position = end
    return False


def _atom_end(pattern: str, position: int) -> int:
    """Returns the end of a letter, an escape or a set."""
    if pattern[position] == "\\":
        braces = _NAMED.match(pattern, position)
        return position + 2 if braces is None else braces.end()
    if pattern[position] != "[":
        return position + 1
    depth, end = 0, position
    while end < len(pattern):
        if pattern[end] == "\\":
            end += 1
        elif pattern[end] == "[":
            depth += 1
        elif pattern[end] == "]":
            depth -= 1
            if not depth:
                return end + 1
        end += 1
    return len(pattern)


def _repetition(pattern: str, position: int) -> tuple[bool, int]:
    """Returns whether the part before a position is repeated endlessly or often, and the end of the repetition."""
    match = _REPEATED.match(pattern, position)
    if match is None:
        return False, position
    kind, least, comma, most = match[1], match[2], match[3], match[4]
    if kind in ("*", "+"):
        return True, match.end()
    if kind == "?":
        return False, match.end()
    bound = most if comma else least
    return not bound or len(bound) > 3 or int(bound) > _OFTEN, match.end()


def _begin_alike(firsts: list[str]) -> bool:
    """Returns whether two of a group's alternatives can begin with the same letter, as far as one sees."""
    if "|" not in firsts:
        return False
    letters = [first for first in firsts if first != "|"]
    return (
        len(letters) <= firsts.count("|")
        or len({*letters}) < len(letters)
        or any(len(x) > 1 for x in letters)
        or (any(letter in ".(^$" for letter in letters))
    )


def _error(path: str, field: str, actual: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path}: {field}: expected {expected}; found {actual}: {_COPY}")
