"""Calls of the tokenizers library: texts encoded beside other threads, and failures as errors of this one."""

import contextlib
from collections.abc import Iterator
from typing import Final

import tokenizers

from lang_core import CheckpointError, TapelineError

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
    """Returns the ids of a text as ``encoding_of`` does, in half of the time: the library notes no offsets."""
    (encoding,) = inner.encode_batch_fast([text], add_special_tokens=special_tokens)
    return encoding.ids


@contextlib.contextmanager
def library_errors(failure: str, advice: str) -> Iterator[None]:
    """Raises CheckpointError for anything that the tokenizers library raises in the block.

    Args:
        failure: what failed, with the file.
        advice: what to do about it.

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
