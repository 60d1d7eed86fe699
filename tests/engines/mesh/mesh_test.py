"""Bundles cut over four virtual devices in JAX, against the same bundle on one device."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, DeviceError, InputError, MeshShape
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleModel, BundleSlots
from tapeline.running import DumpOptions
from tests.product._bundles import export

_PROMPT = [5, 60, 7, 200, 9, 300, 4]
_STEPS = 12
_LONG = bool(os.environ.get("TAPELINE_LONG"))


def _exported(folder: Path, **options: Any) -> Bundle:
    sizes: Any = {"num_layers": 1, "sequence": 4, "max_sequence": 32, "target": ()}
    return Bundle(export("demo", folder / "bundle", **(sizes | options)))


def _place(mesh: str | None) -> Place:
    return Place("jax", "cpu", None if mesh is None else MeshShape.parse(mesh))


def _decoded(bundle: Bundle, mesh: str | None) -> tuple[np.ndarray, list[list[int]]]:
    """Returns logits [calls, B, V] and tokens of a prompt and the steps behind it; caches stay where they are."""
    with open_session(bundle, _place(mesh)) as session:
        model = BundleModel(bundle, session)
        held: Any = model.caches
        model.prefill(np.array([_PROMPT[:4]], np.int32), 0, 3)
        prediction = model.prefill(np.array([[*_PROMPT[4:], 0]], np.int32), 4, 2)
        places = [held.addresses(index) for index in range(len(model.cache_specs))]
        logits, tokens = [prediction.logits()], list[list[int]]()
        for step in range(_STEPS):
            tokens.append([prediction.likeliest()])
            prediction = model.decode(tokens[-1][0], len(_PROMPT) + step)
            logits.append(prediction.logits())
            assert [held.addresses(index) for index in range(len(model.cache_specs))] == places
        return np.stack(logits), tokens


def _check_alike(bundle: Bundle, mesh: str) -> None:
    logits, tokens = _decoded(bundle, mesh)
    expected, expected_tokens = _decoded(bundle, None)
    assert tokens == expected_tokens
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return _exported(tmp_path_factory.mktemp("halves"), num_layers=2, mesh="tp=2")


def test_two_devices_say_what_one_says(halves: Bundle) -> None:
    _check_alike(halves, "tp=2")


def test_each_device_reads_and_holds_its_part(halves: Bundle) -> None:
    weights = halves.weights()
    assert weights is not None
    assert halves.config.mesh is not None
    cut = {path for path, axes in halves.config.mesh.parameters.items() if "tp" in axes}
    with open_session(halves, _place("tp=2")) as session:
        opened: Any = session
        model = BundleModel(halves, session)
        model.decode(5, 0)
        assert opened.parameter_bytes == sum(weights.spec(path).nbytes for path in halves.config.parameters)
        assert {"model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight"} <= cut
        held: Any = model.caches
        (shape,) = {spec.shape for spec in model.cache_specs.values()}
        shards = held.arrays("look at")[0].addressable_shards
        assert [shard.data.shape for shard in shards] == [(shape[0], shape[1] // 2, *shape[2:])] * 2
        text = opened.compiled_text("decode")
        assert len(re.findall(r" all-reduce(?:-start)?\(", text)) >= 2 * 2
        assert not re.findall(r"\[1,2,32,16\]\S* all-gather", text)


def test_more_devices_than_heads_of_keys(tmp_path: Path) -> None:
    _check_alike(_exported(tmp_path, mesh="tp=4"), "tp=4")


@pytest.mark.skipif(not _LONG, reason="tests/mesh cuts packed weights: TAPELINE_LONG=1")
def test_packed_weights_are_cut_too(tmp_path: Path) -> None:
    _check_alike(_exported(tmp_path, mesh="tp=2", quantize="q8_0"), "tp=2")


def test_sequences_of_a_batch_lie_on_devices_of_their_own(tmp_path: Path) -> None:
    bundle = _exported(tmp_path, mesh="dp=2", batch=2)
    point, results = bundle.entry_point("decode"), []
    for mesh in ("dp=2", None):
        with open_session(bundle, _place(mesh)) as session:
            caches = session.hold([session.zeros(a.spec) for a in point.arguments if a.donated])
            decode, ids, logits = session.updating("decode", 1), np.array([[5], [60]], np.int32), []
            for step in range(_STEPS):
                rows = decode(caches, ids, step)[0].numpy()
                logits.append(rows)
                ids = rows.argmax(-1).astype(np.int32)[:, None]
            results.append(np.stack(logits))
            held: Any = caches
            shape = next(a.spec.shape for a in point.arguments if a.donated)
            rows_held = 1 if mesh else 2
            assert {s.data.shape for s in held.arrays("look at")[0].addressable_shards} == {(rows_held, *shape[1:])}
    cut, whole = results
    assert np.array_equal(cut.argmax(-1), whole.argmax(-1))
    np.testing.assert_allclose(cut, whole, rtol=0, atol=1e-6 * np.abs(whole).max())


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param({}, id="rows", marks=pytest.mark.skipif(not _LONG, reason="slots of rows: TAPELINE_LONG=1")),
        pytest.param({"pages": 5, "page_tokens": 16}, id="pages"),
    ],
)
def test_rows_of_slots_are_read_and_written_through_cut_caches(pages: dict[str, int], tmp_path: Path) -> None:
    sizes: Any = {"max_sequence": 32, "slots": 2, "sequence": 8, **pages}
    bundle = _exported(tmp_path, mesh="tp=2", **sizes)
    with open_session(bundle, _place("tp=2")) as session:
        slots = BundleSlots(bundle, session)
        first = slots.prefill_row(_PROMPT, 0, 0).logits()
        kept = slots.read_row(0, 0, len(_PROMPT))
        assert all(array.any() for array in kept)
        slots.write_row(1, 0, kept)
        for mine, theirs in zip(slots.read_row(1, 2, 7), kept, strict=True):
            np.testing.assert_array_equal(mine, theirs[:, 2:])
        here, there = (slots.decode((row,), (3,), (len(_PROMPT),))[0].logits() for row in (0, 1))
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-6 * np.abs(here).max())
        assert np.abs(first).max() > 0


def test_the_library_and_chosen_sizes(halves: Bundle) -> None:
    texts = []
    for mesh in ("tp=1", "tp=2"):
        with tapeline.load(halves, engine="jax", mesh=mesh) as model:
            texts.append(model.generate(token_ids=_PROMPT, max_new_tokens=4, ignore_eos=True).text)
            assert model.device == "cpu"
    assert len(set(texts)) == 1


def test_meshes_that_do_not_fit_are_refused(halves: Bundle, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mesh=tp=4: .*tp=4 does not divide dimension 1 of \[1, 2, 32, 16\]"):
        tapeline.load(halves, engine="jax", mesh="tp=4")
    with pytest.raises(InputError, match=r"exported with mesh=tp=2, which has no axis 'dp'"):
        tapeline.load(halves, engine="jax", mesh="dp=2")
    with pytest.raises(ConfigError, match="axis 'tq' not found; available: dp, tp, ep, fsdp"):
        tapeline.load(halves, engine="jax", mesh="tq=2")
    plain = _exported(tmp_path)
    with pytest.raises(InputError, match="exported without a mesh, so it does not say how its tensors are cut"):
        tapeline.load(plain, engine="jax", mesh="tp=2")
    wide = _exported(tmp_path / "wide", mesh="dp=8", batch=8)
    with pytest.raises(DeviceError, match=r"mesh=dp=8: needs 8 devices, JAX has 4 \(cpu\)"):
        tapeline.load(wide, engine="jax", mesh="dp=8")


def test_two_devices_dump_what_one_dumps(tmp_path: Path) -> None:
    bundle = _exported(tmp_path, num_layers=1, mesh="tp=2", dump_tags=("*.output", "*.block.*"))
    for mesh in (None, "tp=2"):
        options = DumpOptions(tmp_path / f"dump.{mesh}", 2)
        with tapeline.load(bundle, engine="jax", device="cpu", mesh=mesh, dump=options) as model:
            model.generate(token_ids=_PROMPT, max_new_tokens=1, ignore_eos=True)
    comparison = tapeline.compare_dumps(tmp_path / "dump.tp=2", tmp_path / "dump.None", 1e-5)
    assert {tensor.state for tensor in comparison.tensors} == {"agrees"}
    assert {tensor.label.kernel is None for tensor in comparison.tensors} == {True, False}
