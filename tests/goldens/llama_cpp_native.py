"""llama.cpp's C interface, in xllamacpp's library: what its server does not do (T5s, scores of tokens by their ids).

Structs are passed on as they come, in more room than they take; of none is a field read or set here.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

_ROOM: Final = 1024


class _Struct(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * _ROOM)]


class Llama:
    """A model in a GGUF file.

    Args:
        library: xllamacpp's.
        path: the file.
    """

    def __init__(self, library: Path, path: Path) -> None:
        self._library: Final = ctypes.CDLL(str(library))
        self._call("llama_backend_init", None)
        parameters = self._call("llama_model_default_params", _Struct)
        self._model: Final = self._call("llama_model_load_from_file", ctypes.c_void_p, str(path).encode(), parameters)
        if not self._model:
            raise SystemExit(f"{path}: llama.cpp does not load it")

    def scores(self, tokens: Sequence[int], count: int) -> list[float]:
        """Returns the ``count`` scores of a text, by the head that ranks."""
        context = self._context()
        self._call("llama_set_embeddings", None, context, ctypes.c_bool(True))
        self._feed("llama_encode" if self._is_encoder() else "llama_decode", context, tokens)
        pointer = self._call("llama_get_embeddings_seq", ctypes.POINTER(ctypes.c_float), context, ctypes.c_int32(0))
        return pointer[:count]

    def answered(self, tokens: Sequence[int], start: int, vocabulary: int, steps: int) -> list[np.ndarray]:
        """Returns the logits [V] of greedy steps of a model that answers a whole text."""
        context, token, rows = self._context(), start, []
        self._feed("llama_encode", context, tokens)
        for _ in range(steps):
            self._feed("llama_decode", context, [token])
            pointer = self._call("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), context, ctypes.c_int32(-1))
            rows.append(np.array(pointer[:vocabulary], np.float32))
            token = int(rows[-1].argmax())
        return rows

    def _context(self) -> ctypes.c_void_p:
        parameters = self._call("llama_context_default_params", _Struct)
        return ctypes.c_void_p(self._call("llama_init_from_model", ctypes.c_void_p, self._handle(), parameters))

    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._model)

    def _is_encoder(self) -> bool:
        """Returns whether tokens see later ones, for which the file's key for causal attention stands."""
        buffer = ctypes.create_string_buffer(64)
        name = self._call(
            "llama_model_meta_val_str", ctypes.c_int32, self._handle(), b"general.architecture", buffer, 64
        )
        return name > 0 and b"bert" in buffer.value

    def _feed(self, how: str, context: ctypes.c_void_p, tokens: Sequence[int]) -> None:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self._call("llama_batch_get_one", _Struct, ids, ctypes.c_int32(len(tokens)))
        code = self._call(how, ctypes.c_int32, context, batch)
        if code:
            raise SystemExit(f"{how} gives {code}")

    def _call(self, name: str, result: Any, *values: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        return function(*values)


def top_of(logits: np.ndarray, count: int) -> list[tuple[int, float]]:
    """Returns the likeliest tokens, best first, with the logarithms of their probabilities."""
    shifted = logits.astype(np.float64) - logits.max()
    known = shifted - np.log(np.exp(shifted).sum())
    return [(int(token), round(float(known[token]), 5)) for token in np.argsort(-known)[:count]]
