from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import Argument, EntryPoint, InputError, Module, Parameter, TensorSpec
from runtime.dump import Dumper, DumpWriter, eager_call, read_dump, tags_by_entry_point


class Layer(Module):
    def __init__(self) -> None:
        self.scale = Parameter((3,))

    def forward(self, ctx: Any, x: Any) -> Any:
        return ctx.tag(ctx.ops.mul(x, ctx.parameter(self.scale)), "scaled")


class Model(Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]

    def forward(self, ctx: Any, x: Any) -> Any:
        for layer in self.layers:
            x = layer(ctx, x)
        return ctx.tag(x, "large", detail=True)


class Weights:
    def spec(self, key: str) -> TensorSpec:
        return TensorSpec((3,), "f32")

    def read(self, key: str) -> np.ndarray:
        return np.array([1, 2, 3], np.float32)


_MODEL = Model()
_ARGUMENTS = (
    Argument("x", TensorSpec((2, 3), "f32")),
    Argument("state", TensorSpec((2, 3), "f32"), alias_result="new"),
)
_MAIN = EntryPoint("main", lambda ctx, x, s: {"y": _MODEL(ctx, x), "new": ctx.ops.add(s, x)}, _ARGUMENTS)
_OTHER = EntryPoint("other", lambda ctx, x, s: {"new": ctx.tag(ctx.ops.sub(s, x), "only here")}, _ARGUMENTS)
_INPUTS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "state": np.ones((2, 3), np.float32)}


def names(globs: list[str]) -> dict[str, list[str]]:
    chosen = tags_by_entry_point([_MAIN, _OTHER], globs)
    return {entry_point: [tag.name for tag in tags] for entry_point, tags in chosen.items()}


def test_tags_by_entry_point() -> None:
    layers = ["layers.0.scaled", "layers.1.scaled"]
    assert names(["*"]) == {"main": layers, "other": ["only here"]}
    assert names(["only*", "large"]) == {"main": ["large"], "other": ["only here"]}
    assert names([]) == {"main": [], "other": []}
    with pytest.raises(InputError, match=r"tags 'only there': no tensor .*; did you mean 'only here'"):
        names(["only there"])


@pytest.mark.parametrize("level", [1, 2, 3])
def test_calls_are_steps_and_levels_choose(tmp_path: Path, level: int) -> None:
    with DumpWriter(tmp_path / "dump", level=level, source={"context": "eager"}, tags=["*.1.*"]) as writer:
        dumper = Dumper(writer, tags_by_entry_point([_MAIN, _OTHER], ["*.1.*"]))
        for entry_point in (_MAIN, _MAIN, _OTHER):
            results = eager_call(dumper, entry_point, Weights(), _INPUTS)  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(results["new"], 1 - _INPUTS["x"])
    dump = read_dump(tmp_path / "dump")
    records = [(r.step, r.entry_point, r.name, r.direction, r.when, r.file is not None) for r in dump.records]
    payload = level == 2
    steps = []
    for step in range(3):
        name = "main" if step < 2 else "other"
        arguments = [("x", "IN", "before", payload), ("state", "INOUT", "before", payload)]
        tags = [("layers.1.scaled", "TAG", "during", True)] if step < 2 else []
        outs = [("y", "OUT", "after", payload)] if step < 2 else []
        shown = [*arguments, *tags, *outs, ("new", "INOUT", "after", payload)] if level > 1 else tags
        steps += [(step, name, *row) for row in shown]
    assert records == steps
    tagged = next(record for record in dump.records if record.direction == "TAG")
    np.testing.assert_array_equal(dump.load(tagged), _INPUTS["x"] * np.array([1, 4, 9], np.float32))
    assert (tagged.module_path, tagged.op, tagged.iteration) == ("layers.1", "mul", 0)
    assert "runtime/dump/_eager_test.py:" in (tagged.line or "")
