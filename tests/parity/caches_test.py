"""Every form of positions and caches, with layers that share them: recorded, streamed, interpreted, on a device."""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_dag import evaluate, record
from compile_hlo import lower_module
from compile_hlo.emit import ArgumentParameters, Form, InlineParameters
from compile_hlo.portable import interpret
from lang_core import EagerExecutionContext, EntryPoint, MappingWeights
from run_iree import Session, compile_module
from tests.goldens.samples import LONG
from transformer_core import RopeConfig
from transformer_core.models import DecoderConfig, DecoderLM, entry_points

BATCH, LENGTH = 3, 19
MODEL = DecoderLM(
    DecoderConfig(
        architecture="LlamaForCausalLM",
        vocabulary=29,
        hidden=20,
        intermediate=28,
        layers=4,
        heads=4,
        kv_heads=2,
        head_size=6,
        norm_eps=1e-5,
        rope=RopeConfig(rotated=6, trained_length=64),
        windows=(4, None, 4, None),
        cache_owners=(None, None, 0, 1),
        qk_norm=True,
    )
)
IDS = np.random.default_rng(3).integers(0, 29, (BATCH, LENGTH)).astype(np.int32)
FORMS = [(positions, caches) for positions in ("shared", "per_row") for caches in ("whole", "ring")]
_ALL = pytest.mark.parametrize(("positions", "caches"), FORMS)


def _arrays() -> dict[str, np.ndarray]:
    made = {}
    for path, parameter in MODEL.named_parameters():
        random = np.random.default_rng(zlib.crc32(path.encode())).standard_normal(parameter.spec.shape)
        made[path] = (random / np.sqrt(parameter.spec.shape[-1]) + (parameter.spec.ndim == 1)).astype(np.float32)
    return made


WEIGHTS = _arrays()
CONTEXT = EagerExecutionContext(MappingWeights(WEIGHTS))


def points_of(positions: str, caches: str) -> dict[str, EntryPoint]:
    made = entry_points(
        MODEL,
        names=("prefill", "decode", "verify"),
        batch=BATCH,
        sequence=4,
        max_sequence=LENGTH,
        verify_tokens=2,
        positions=positions,
        window_caches=caches,
    )
    return {point.name: point for point in made}


def text_of(points: Mapping[str, EntryPoint], form: Form, *, streaming: bool) -> str:
    pieces: list[str] = []
    lower_module(list(points.values()), pieces.append, form, streaming=streaming)
    return "".join(pieces)


def inline() -> InlineParameters:
    return InlineParameters(lambda path, _: [WEIGHTS[path]])


def calls(positions: str) -> list[tuple[str, list[np.ndarray]]]:
    """Pieces, padded ones and single tokens, past a wrap of the rings; per row, rows go on at their own speed."""
    if positions == "shared":
        pieces = [("prefill", 0, 4), ("prefill", 4, 4), ("prefill", 8, 2), ("verify", 10, 2), ("decode", 12, 1)]
        pieces += [("decode", position, 1) for position in range(13, 16)]
        made = [(name, np.full(BATCH, start), np.full(BATCH, count)) for name, start, count in pieces]
    else:
        starts = np.zeros(BATCH, np.int64)
        made = []
        for name, counts in (
            ("prefill", (4, 1, 4)),
            ("prefill", (4, 0, 2)),
            ("prefill", (3, 3, 0)),
            ("verify", (2, 1, 2)),
            *[("decode", (1, 1, 1))] * 5,
        ):
            made.append((name, starts.copy(), np.array(counts)))
            starts += counts
    return [(name, _inputs(name, positions, start, count)) for name, start, count in made]


def _inputs(name: str, positions: str, starts: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    width = {"prefill": 4, "verify": 2, "decode": 1}[name]
    tokens = np.full((BATCH, width), 28, np.int32)
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        tokens[row, :count] = IDS[row, start : start + count]
    places = [starts] if name == "decode" else [starts, counts - 1]
    return [tokens, *[(place if positions == "per_row" else place[0]).astype(np.int32) for place in places]]


def run(points: Mapping[str, EntryPoint], positions: str, function: Callable[[str, list[Any]], list[Any]]) -> list[Any]:
    """Logits and next ids of every call, and the last caches; each call goes on from the caches before."""
    kept: list[Any] = [np.zeros(a.spec.shape, np.float32) for a in points["decode"].arguments if a.alias_result]
    outputs = []
    for name, inputs in calls(positions):
        logits, *kept, next_ids = function(name, [*inputs, *kept])
        outputs += [logits, next_ids]
    return [*outputs, *kept]


def eagerly(points: Mapping[str, EntryPoint], positions: str) -> list[np.ndarray]:
    def function(name: str, values: list[Any]) -> list[Any]:
        return list(points[name](CONTEXT, *map(CONTEXT.constant, values)).values())

    return [tensor.numpy() for tensor in run(points, positions, function)]


def _close(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)  # of up to 4


@_ALL
def test_streamed_text_is_buffered_text(positions: str, caches: str) -> None:
    points = points_of(positions, caches)
    text = text_of(points, ArgumentParameters(), streaming=False)
    assert ("stablehlo.scatter" in text) == (positions == "per_row" or caches == "ring")
    assert text_of(points, ArgumentParameters(), streaming=True) == text


@_ALL
def test_recorded_ones_give_the_bits_of_eager_ones(positions: str, caches: str) -> None:
    points = points_of(positions, caches)

    def function(name: str, values: list[Any]) -> list[Any]:
        arguments = points[name].arguments
        graph = record(
            points[name].fn, *[a.spec for a in arguments], input_names=[a.name for a in arguments], name=name
        )
        named = {a.name: CONTEXT.constant(value) for a, value in zip(arguments, values, strict=True)}
        return [tensor.numpy() for tensor in evaluate(graph, CONTEXT, named).values()]

    for mine, theirs in zip(run(points, positions, function), eagerly(points, positions), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_interpreter_agrees(tmp_path: Path) -> None:
    points = points_of("per_row", "ring")
    texts: dict[str, tuple[Path, list[str]]] = {}
    for name, point in points.items():
        pieces: list[str] = []
        lowered = lower_module([point], pieces.append, ArgumentParameters(), streaming=False)
        texts[name] = tmp_path / f"{name}.mlir", list(lowered.parameters())
        texts[name][0].write_text("".join(pieces))
    kept: list[Any] = [np.zeros(a.spec.shape, np.float32) for a in points["decode"].arguments if a.alias_result]
    for index in (0, 2, 3, 5):
        name, inputs = calls("per_row")[index]
        text, order = texts[name]
        actual = interpret(text, [*inputs, *kept, *[WEIGHTS[path] for path in order]])
        eager = points[name](CONTEXT, *map(CONTEXT.constant, [*inputs, *kept])).values()
        _close(actual, [tensor.numpy() for tensor in eager])
        kept = actual[1:-1]


@pytest.mark.skipif(not LONG, reason="tests/product has rings with positions per row on a device; here it takes long")
def test_a_device_agrees_and_keeps_the_caches_where_they_are(tmp_path: Path) -> None:
    """Checks one form; tests/product runs the others."""
    points = points_of("per_row", "ring")
    (tmp_path / "m.mlir").write_text(text_of(points, inline(), streaming=True))
    compile_module(tmp_path / "m.mlir", tmp_path / "m.vmfb", target="llvm-cpu")
    with Session(tmp_path / "m.vmfb", "local-task") as session:
        places: list[tuple[int | None, ...]] = []

        def function(name: str, values: list[Any]) -> list[Any]:
            arrays = [value for value in values if isinstance(value, np.ndarray)]
            held = [session.upload(array) if array.ndim == 4 else array for array in arrays]
            results = session.function(name)(*(held if len(held) == len(values) else values))
            places.append(tuple(tensor.address() for tensor in results[1:-1]))
            return list(results)

        actual = [tensor.numpy() for tensor in run(points, "per_row", function)]
        assert len(set(places)) == 1
        assert session.counters.bytes_guarded == 0
    _close(actual, eagerly(points, "per_row"))
