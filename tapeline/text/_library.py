"""Calls of the tokenizers library: texts encoded beside other threads, and failures as errors of this one."""

import contextlib
import json
from collections.abc import Collection, Iterator
from typing import Final

import tokenizers

from lang_core import LARGE_JSON_BOUNDS, CheckpointError, TapelineError, json_value

_PANIC: Final = "PanicException"  # of the library's Rust code: no Exception, and no module has its class
_LONGEST: Final = 200


def encoding_of(
    inner: tokenizers.Tokenizer, text: str, second: str | None = None, *, special_tokens: bool = True
) -> tokenizers.Encoding:
    """Encodes a text or a pair of texts while other threads go on: ``inner.encode`` holds the interpreter's lock.

    Args:
        inner: tokenizer without padding.
        text: the text.
        second: second text of a pair.
        special_tokens: whether the post-processor adds its special tokens.
    """
    (encoding,) = inner.encode_batch([text if second is None else (text, second)], add_special_tokens=special_tokens)
    return encoding


def ids_of(inner: tokenizers.Tokenizer, text: str, *, special_tokens: bool = True) -> list[int]:
    """Returns the ids of a text like ``encoding_of``, in half of the time, since offsets are not recorded."""
    (encoding,) = inner.encode_batch_fast([text], add_special_tokens=special_tokens)
    return encoding.ids


def literal_tokenizer(inner: tokenizers.Tokenizer, names: Collection[str]) -> tokenizers.Tokenizer:
    """Returns a copy of a tokenizer that reads the names of special tokens as text.

    Args:
        inner: the tokenizer.
        names: further tokens whose names are text; the library matches other added tokens that are not special.
    """
    fields = json_value(inner.to_str(), LARGE_JSON_BOUNDS)
    for token in fields["added_tokens"]:
        token["special"] = token["special"] or token["content"] in names
    copy = tokenizers.Tokenizer.from_str(json.dumps(fields))
    copy.encode_special_tokens = True
    return copy


@contextlib.contextmanager
def library_errors(failure: str, advice: str) -> Iterator[None]:
    """Raises CheckpointError for anything that the tokenizers library raises in the block.

    Args:
        failure: failed step, with the file.
        advice: the fix.

    >>> with library_errors("tokenizer.json cannot be read", "copy it again"):
    ...     raise ValueError("no such piece")
    Traceback (most recent call last):
        ...
    lang_core._errors.CheckpointError: tokenizer.json cannot be read (no such piece): copy it again
    """
    try:
        yield
    except TapelineError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise CheckpointError(f"{failure} ({error!s:.{_LONGEST}}): {advice}") from error
