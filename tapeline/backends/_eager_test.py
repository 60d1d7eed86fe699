"""The eager engine: what compiled bundles say, with every kind of bundle, and sessions that refuse what is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import DeviceError, InputError
from tapeline.backends import EagerSession, Place, model_of, open_session
from tapeline.runners import BundleModel, BundleSlots

_SIZES: dict[str, Any] = {"num_layers": 1, "sequence": 8, "max_sequence": 48, "verify": "none"}
_KINDS: dict[str, dict[str, Any]] = {
    "one sequence": {"entry_points": ("prefill", "decode", "verify"), "verify_tokens": 4},
    "slots": {"slots": 2, "verify_tokens": 4},
    "pages": {"slots": 2, "page_tokens": 16, "pages": 7},
}
_TEXTS = ["it was the age of wisdom, it was the age of", "the best of times"]
_NEW: dict[str, Any] = {"max_new_tokens": 7, "ignore_eos": True}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    folder = tmp_path_factory.mktemp("compiled")
    bundle = tapeline.export("demo", folder / "b", **_SIZES, **_KINDS["one sequence"])
    with tapeline.load(bundle) as model:
        return [model.generate(text, **_NEW).token_ids for text in _TEXTS]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_bundle_that_is_not_compiled_generates(kind: str, wanted: list[list[int]], tmp_path: Path) -> None:
    bundle = tapeline.export("demo", tmp_path / "b", target=(), **_SIZES, **_KINDS[kind])
    with tapeline.load(bundle, engine="eager") as model:
        assert (model.device, model.target) == ("host", "eager")
        assert [answer.token_ids for answer in model.generate(_TEXTS, **_NEW)] == wanted
        assert [answer.token_ids for answer in model.generate(_TEXTS[::-1], **_NEW)] == wanted[::-1]


def _verified(bundle: tapeline.Bundle) -> np.ndarray:
    """Returns the logits of four tokens in one call of ``verify`` or ``verify_row``."""
    with open_session(bundle, Place("eager")) as session:
        if "slots" in bundle.config.model:
            predictions = BundleSlots(bundle, session).verify_row([9, 40, 7, 300], 1, 0)
        else:
            predictions = BundleModel(bundle, session).verify(np.array([[9, 40, 7, 300]], np.int32), 0, 3)
        return np.stack([prediction.logits() for prediction in predictions])


@pytest.mark.parametrize(
    ("kind", "new", "old"),
    [({"entry_points": ("prefill", "decode", "score")}, "verify", "score"), ({"slots": 2}, "verify_row", "score_row")],
)
def test_bundles_of_earlier_versions_verify_drafts(kind: Any, new: str, old: str, tmp_path: Path) -> None:
    bundle = tapeline.export("demo", tmp_path / "b", target=(), score_tokens=4, **_SIZES, **kind)  # pyright: ignore[reportCallIssue]
    assert bundle.entry_point(old).name == new
    logits = _verified(bundle)
    file = bundle.path / "kernel_config.json"
    fields = json.loads(file.read_text())
    next(point for point in fields["entry_points"] if point["name"] == new)["name"] = old
    fields["model"]["caching"]["score_tokens"] = fields["model"]["caching"].pop("verify_tokens")
    del fields["seals"]
    file.write_text(json.dumps(fields))
    np.testing.assert_array_equal(_verified(tapeline.Bundle(bundle.path)), logits)
    assert logits.shape == (4, 512)


def test_whole_sequences_run(tmp_path: Path) -> None:
    case: Any = {"num_layers": 1, "target": (), "verify": "none"}
    bundle = tapeline.export("demo", tmp_path / "b", entry_points=("forward",), sequence=8, **case)
    with tapeline.load(bundle, engine="eager") as model:
        results = model.run("forward", {"token_ids": np.arange(1, 9, dtype=np.int32)[None]})
        assert results["logits"].shape[:2] == (1, 8)


def test_a_session_refuses_what_is_wrong(tmp_path: Path) -> None:
    bundle = tapeline.export("demo", tmp_path / "b", target=(), **_SIZES)
    _, points = model_of(bundle)
    assert [point.name for point in points] == ["prefill", "decode"]
    signature = bundle.entry_point("decode")
    values: list[Any] = [
        0 if one.kind == "scalar" else np.zeros(one.spec.shape, one.spec.dtype.numpy) for one in signature.arguments
    ]
    with open_session(bundle, Place("eager")) as session:
        assert isinstance(session, EagerSession)
        with pytest.raises(DeviceError, match=r"has no entry point 'decod'; .*did you mean 'decode'"):
            session.function("decod")
        decode = session.function("decode")
        with pytest.raises(DeviceError, match=r"'decode' takes \d+ arguments"):
            decode(*values[:-1])
        with pytest.raises(InputError, match="'position': expected 0 to 47; found 48"):
            decode(values[0], 48, *values[2:])
        cache = session.upload(values[-1])
        caches: Any = decode(*values[:-1], cache)[1:]
        assert not cache.alive
        with pytest.raises(DeviceError, match="it was donated to 'decode'"):
            cache.numpy()
        held = session.hold([caches[0]])
        with pytest.raises(DeviceError, match="it was donated to held tensors"):
            caches[0].numpy()
        before = held.numpy(0)
        held.write(0, (0, 0, slice(0, 2)), np.ones((2, before.shape[-1]), before.dtype))
        assert held.read(0, (0, 0, slice(0, 2))).all()
        assert session.counters.calls == 1
    with pytest.raises(DeviceError, match="is closed"):
        decode(*values)
