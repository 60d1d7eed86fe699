"""Measured: a bundle's prefill and decode as tools:generate runs them. It stays, and answers requests.

A request says what to ``do``; ``context`` names one of several sets of caches:

- ``prompt`` (``context``, ``ids``): runs a prompt from the first position on;
- ``steps`` (``context``, ``position``, ``ids``): decodes these tokens, one after the other, from a position on;
- ``logits`` (``prompt``, ``ids``, ``file``): logits f32 [1 + ids, V], of a prompt's last token and of tokens after it.

What peers answer is the same: see ``tools/benching/peers``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from generation import run_prompt
from runtime import Session
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tapeline.running import let_workers_run
from tools.benching.jobs._measure import Meter, serve_requests

_LOGITS: Final = "logits"


class _Served:
    """Answers requests for one bundle."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        self._bundle: Final = bundle
        self._session: Final = session
        self._models: Final[dict[str, BundleModel]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one request."""
        match request.pop("do"):
            case "prompt":
                return self._prompt(**request)
            case "steps":
                return self._steps(**request)
            case "logits":
                return self._write_logits(**request)
            case other:
                raise KeyError(other)

    def _model(self, context: str) -> BundleModel:
        if context not in self._models:
            self._models[context] = BundleModel(self._bundle, self._session)
        return self._models[context]

    def _prompt(self, context: str, ids: list[int]) -> dict[str, Any]:
        model = self._model(context)
        began = time.perf_counter()
        model.begin(len(ids))
        prediction = run_prompt(model, ids)
        prediction.likeliest()
        return {"seconds": time.perf_counter() - began, "finite": bool(np.isfinite(prediction.logits()).all())}

    def _steps(self, context: str, position: int, ids: list[int]) -> dict[str, Any]:
        model, counters = self._model(context), self._session.counters
        in_module, seconds, outside = counters.module_seconds, [], []
        copied, said = counters.bytes_copied, model.token_bytes
        for place, token_id in enumerate(ids, position):
            began = time.perf_counter()
            model.decode(token_id, place).likeliest()
            seconds.append(time.perf_counter() - began)
            outside.append(seconds[-1] - (counters.module_seconds - in_module))
            in_module = counters.module_seconds
        said = model.token_bytes - said
        return {
            "seconds": seconds,
            "outside_seconds": outside,
            "token_bytes": said / len(ids),
            "bytes_copied": (counters.bytes_copied - copied - said) / len(ids),
        }

    def _write_logits(self, prompt: list[int], ids: list[int], file: str) -> dict[str, Any]:
        model = self._model(_LOGITS)
        model.begin(len(prompt))
        logits = [run_prompt(model, prompt).logits()]
        logits += [model.decode(token_id, place).logits() for place, token_id in enumerate(ids, len(prompt))]
        np.stack(logits).astype(np.float32).tofile(file)
        del self._models[_LOGITS]
        return {}


def main(arguments: dict[str, Any]) -> None:
    """Opens a bundle and answers.

    Args:
        arguments: ``weights``: the bundle's directory; ``engine``: what runs it, IREE where none is named; ``device``:
            the engine's default where none is named.
    """
    meter = Meter()
    began = time.perf_counter()
    bundle = Bundle(Path(arguments["weights"]))
    with open_session(bundle, Place(arguments.get("engine", "iree"), arguments.get("device"))) as session:
        let_workers_run()
        ready = {"load_seconds": time.perf_counter() - began, "base_rss_bytes": meter.base.rss}
        serve_requests(ready, _Served(bundle, session).answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
