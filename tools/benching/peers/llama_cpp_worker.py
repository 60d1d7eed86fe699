"""Measured: llama.cpp, by the C functions that llama-cpp-python wraps. It stays, and answers as jobs/decode.py does.

Started as a file by the interpreter that has llama-cpp-python, so it imports nothing of ours. Threads are as many for
prompts as for steps; the file is mapped; logits of the last token alone are made, as llama.cpp does when asked for no
more. Everything else is llama.cpp's own default.
"""

import ctypes
import importlib
import json
import os
import sys
import time
from typing import Any

_MISSING = 3  # the exit code where there is no llama-cpp-python
_FLASH_ATTENTION = {-1: "auto", 0: "off", 1: "on"}
_KINDS = {0: "f32", 1: "f16", 30: "bf16"}


class _Model:
    """A GGUF file, and contexts by name."""

    def __init__(self, lib: Any, path: str, threads: int, tokens: int) -> None:
        parameters = lib.llama_model_default_params()
        parameters.use_mmap = True
        self._lib = lib
        self._model = lib.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            sys.exit(f"llama.cpp cannot load {path}")
        self._threads, self._tokens = threads, tokens
        self._vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self._contexts: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request."""
        return {"prompt": self._prompt, "steps": self._steps, "logits": self._write_logits}[request.pop("do")](
            **request
        )

    def _context(self, name: str) -> Any:
        if name not in self._contexts:
            made = self._lib.llama_init_from_model(
                self._model, context_parameters(self._lib, self._threads, self._tokens)
            )
            if not made:
                sys.exit("llama.cpp cannot make a context")
            self._contexts[name] = made
        return self._contexts[name]

    def _cut(self, context: Any, position: int) -> None:
        """Forgets what stands at a position and after it."""
        self._lib.llama_memory_seq_rm(self._lib.llama_get_memory(context), 0, position, -1)

    def _run(self, context: Any, ids: list[int]) -> None:
        tokens = (self._lib.llama_token * len(ids))(*ids)
        code = self._lib.llama_decode(context, self._lib.llama_batch_get_one(tokens, len(ids)))
        if code:
            sys.exit(f"llama_decode of {len(ids)} tokens gave {code}")
        self._lib.llama_synchronize(context)

    def _logits(self, context: Any) -> bytes:
        return ctypes.string_at(self._lib.llama_get_logits_ith(context, -1), 4 * self._vocabulary)

    def _prompt(self, context: str, ids: list[int]) -> dict[str, Any]:
        made = self._context(context)
        self._cut(made, 0)
        began = time.perf_counter()
        self._run(made, ids)
        seconds = time.perf_counter() - began
        values = memoryview(self._logits(made)).cast("f")
        return {"seconds": seconds, "finite": all(abs(value) < float("inf") for value in values)}

    def _steps(self, context: str, position: int, ids: list[int]) -> dict[str, Any]:
        made, seconds = self._context(context), []
        self._cut(made, position)
        for token_id in ids:
            began = time.perf_counter()
            self._run(made, [token_id])
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds}

    def _write_logits(self, prompt: list[int], ids: list[int], file: str) -> dict[str, Any]:
        made = self._context("logits")
        with open(file, "wb") as output:
            for piece in (prompt, *([token_id] for token_id in ids)):
                self._run(made, piece)
                output.write(self._logits(made))
        self._lib.llama_free(self._contexts.pop("logits"))
        return {}


def context_parameters(lib: Any, threads: int, tokens: int) -> Any:
    """llama.cpp's own, but for the threads and the room: a prompt of all positions fits into one batch."""
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = tokens
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.no_perf = True
    return parameters


def settings(lib: Any, version: str) -> dict[str, Any]:
    """Returns what a reader has to know of the peer."""
    parameters = context_parameters(lib, 1, 1)
    features = lib.llama_print_system_info().decode()
    return {
        "version": version,
        "cache": _KINDS.get(parameters.type_k, f"type {parameters.type_k}"),
        "flash_attention": _FLASH_ATTENTION.get(parameters.flash_attn_type, "unknown"),
        "batch": parameters.n_ubatch,
        "features": [
            part.split("=")[0].strip().split()[-1] for part in features.split("|") if part.strip().endswith("= 1")
        ],
    }


def main(arguments: dict[str, Any]) -> None:
    """Says what it is, where no ``weights`` are named; else loads the file and answers.

    Args:
        arguments: ``weights``: a GGUF file; ``threads``; ``tokens``: the room of a context.
    """
    try:
        package = importlib.import_module("llama_cpp")
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(_MISSING)
    quiet = package.llama_log_callback(lambda level, text, data: None)
    package.llama_log_set(quiet, ctypes.c_void_p(0))
    package.llama_backend_init()
    if "weights" not in arguments:
        print(json.dumps(settings(package, package.__version__)))
        return
    began = time.perf_counter()
    model = _Model(package, arguments["weights"], arguments["threads"], arguments["tokens"])
    print(json.dumps({"load_seconds": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        print(json.dumps(model.answer(json.loads(line))), flush=True)
    sys.stdout.flush()
    os._exit(0)  # llama.cpp's own end at the interpreter's exit is of no interest, and may crash


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
