"""Repositories and settings that the tests of this room share."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tapeline.cli import ProgressEvent
from tapeline.hub._names import HubName, ModelLocation, parse_hub_name
from tapeline.hub._server_testing import HubServer
from tapeline.hub._settings import HubSettings
from tapeline.hub._snapshot import Snapshot


def safetensors(**tensors: np.ndarray) -> bytes:
    """Returns the bytes of a safetensors file of f32 tensors."""
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values())


SURPLUS: Final = bytes(range(256)) * 700
WEIGHTS: Final = safetensors(w=np.arange(35_000, dtype=np.float32).reshape(7, 5000))
MODEL: Final = {
    "config.json": b'{"a": 1}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "consolidated.safetensors": SURPLUS,
    "original/model.safetensors": SURPLUS,
    "onnx/model.onnx": b"graph",
    "README.md": b"text",
}
"""Files of a repository with a model in it, and others."""


class Events(list[ProgressEvent]):
    """Progress that is kept."""

    def __call__(self, event: ProgressEvent) -> None:
        """Keeps an event."""
        self.append(event)


def quick_settings(server: HubServer, cache: Path) -> HubSettings:
    """Returns settings for a server on this machine, with short waits."""
    return HubSettings(server.endpoint, cache, stall_seconds=5, answer_seconds=5, pause_seconds=0.01)


def use_hub(monkeypatch: pytest.MonkeyPatch, server: HubServer, cache: Path) -> None:
    """Has names of the hub resolved by a server on this machine."""
    settings = quick_settings(server, cache)
    monkeypatch.setattr(HubSettings, "from_environment", lambda: settings)


def fetch(settings: HubSettings, text: str, need: Any = "weights", events: Events | None = None) -> ModelLocation:
    """Downloads what a name stands for."""
    name = parse_hub_name(text) or HubName("org/none")
    with Snapshot(name, Events() if events is None else events, settings).model(need) as location:
        return location
