"""Measured: transformers on torch, in eager mode or compiled. It stays, and answers as jobs/decode.py does.

Started as a file by the interpreter that has transformers, so it imports nothing of ours. Both modes have a static
cache of the same room; a step ends when its token's number is on the host. Compiled: ``torch.compile`` with CUDA graphs
where there are such (``reduce-overhead``).
"""

import importlib
import json
import sys
import time
from typing import Any

_MISSING = 3  # the exit code where there is no transformers


class _Model:
    """A checkpoint on a device, and caches by the name of a context."""

    def __init__(self, torch: Any, transformers: Any, arguments: dict[str, Any]) -> None:
        self._torch, self._transformers = torch, transformers
        self._device, self._tokens = torch.device(arguments["device"]), arguments["tokens"]
        dtype = getattr(torch, arguments["dtype"])
        loaded = transformers.AutoModelForCausalLM.from_pretrained(arguments["weights"], dtype=dtype)
        self._model = loaded.to(self._device).eval()
        self._step = self._forward
        if arguments["compiled"]:
            self._step = torch.compile(self._forward, mode="reduce-overhead", fullgraph=True)
        self._caches: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request."""
        kinds = {"prompt": self._prompt, "steps": self._steps, "logits": self._write_logits}
        with self._torch.inference_mode():
            return kinds[request.pop("do")](**request)

    def _forward(self, ids: Any, positions: Any, cache: Any) -> Any:
        """Returns the logits [B, V] of the last token."""
        return self._model(
            input_ids=ids,
            position_ids=positions[None],
            cache_position=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def _cache(self, context: str, position: int) -> Any:
        """Returns a context's cache, with ``position`` tokens in it as far as it counts them."""
        if context not in self._caches:
            self._caches[context] = self._transformers.StaticCache(
                config=self._model.config, max_cache_len=self._tokens
            )
        cache = self._caches[context]
        for layer in cache.layers:
            count: Any = getattr(layer, "cumulative_length", None)
            if self._torch.is_tensor(count):
                count.fill_(position)
            elif count is not None:
                layer.cumulative_length = position
        return cache

    def _run(self, call: Any, context: str, position: int, ids: list[int]) -> Any:
        tokens = self._torch.tensor([ids], device=self._device)
        positions = self._torch.arange(position, position + len(ids), device=self._device)
        return call(tokens, positions, self._cache(context, position))

    def _prompt(self, context: str, ids: list[int]) -> dict[str, Any]:
        began = time.perf_counter()
        logits = self._run(self._forward, context, 0, ids)
        int(logits.argmax())
        return {"seconds": time.perf_counter() - began, "finite": bool(logits.isfinite().all())}

    def _steps(self, context: str, position: int, ids: list[int]) -> dict[str, Any]:
        seconds = []
        for place, token_id in enumerate(ids, position):
            began = time.perf_counter()
            int(self._run(self._step, context, place, [token_id]).argmax())
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds}

    def _write_logits(self, prompt: list[int], ids: list[int], file: str) -> dict[str, Any]:
        with open(file, "wb") as output:
            place = 0
            for piece in (prompt, *([token_id] for token_id in ids)):
                call = self._forward if len(piece) > 1 else self._step
                output.write(self._run(call, "logits", place, piece).float().cpu().numpy().tobytes())
                place += len(piece)
        return {}


def main(arguments: dict[str, Any]) -> None:
    """Says what it is, where no ``weights`` are named; else loads the checkpoint and answers.

    Args:
        arguments: ``weights``: a Hugging Face directory; ``device`` and ``dtype``, as torch names them; ``tokens``: the
            room of a cache; ``compiled``.
    """
    try:
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(_MISSING)
    if "weights" not in arguments:
        print(json.dumps({"version": transformers.__version__, "torch": torch.__version__}))
        return
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    began = time.perf_counter()
    model = _Model(torch, transformers, arguments)
    print(json.dumps({"load_seconds": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        print(json.dumps(model.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
