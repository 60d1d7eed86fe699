"""A lowering that fails writes nothing."""

from pathlib import Path
from typing import Any

import pytest

from compile_hlo import lower_module, text_file
from compile_hlo.emit import ExternalParameters, InlineParameters
from lang_core import Argument, EntryPoint, GraphError, InputError, OpError, Parameter, TagSelection, TensorSpec

SPEC = TensorSpec((2, 3), "f32")


def _point(name: str, fn: Any) -> EntryPoint:
    return EntryPoint(name, fn, (Argument("x", SPEC),))


def _good(ctx: Any, x: Any) -> dict[str, Any]:
    for index in range(3):
        with ctx.block(f"layers.{index}"):
            x = ctx.ops.exp(x)
    return {"y": x}


def _bad_in_the_last_block(ctx: Any, x: Any) -> dict[str, Any]:
    x = _good(ctx, x)["y"]
    return {"y": ctx.ops.reshape(x, (4, 2))}


def _one_path_two_specs(ctx: Any, x: Any) -> dict[str, Any]:
    for spec in (SPEC, TensorSpec((1, 3), "f32")):
        weight = Parameter(spec.shape)
        weight._name = "weight"
        x = ctx.ops.add(x, ctx.parameter(weight))
    return {"y": x}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (_bad_in_the_last_block, OpError, "reshape"),
        (_one_path_two_specs, GraphError, "'weight': the model reads it as"),
    ],
)
def test_nothing_of_a_function_that_fails_or_of_those_before_it_is_written(
    fn: Any, error: type[Exception], text: str, streaming: bool, tmp_path: Path
) -> None:
    pieces: list[str] = []
    points = [_point("first", _good), _point("second", fn)]
    with pytest.raises(error, match=text):
        lower_module(points, pieces.append, ExternalParameters(), streaming=streaming)
    assert not pieces
    path = tmp_path / "module.mlir"
    with pytest.raises(error), text_file(path) as file:
        lower_module(points, file.write, ExternalParameters(), streaming=streaming)
    assert not list(tmp_path.iterdir())
    path.write_text("of before")
    with pytest.raises(error), text_file(path) as file:
        lower_module(points, file.write, ExternalParameters(), streaming=streaming)
    assert path.read_text() == "of before"
    with text_file(path) as file:
        lower_module(points[:1], file.write, ExternalParameters(), streaming=streaming)
    assert path.read_text().endswith("}\n")
    assert [path] == list(tmp_path.iterdir())


def test_nothing_is_written_before_tags_and_weights_are_known_to_be_there() -> None:
    pieces: list[str] = []
    with pytest.raises(InputError, match="no tensor"):
        lower_module(
            [_point("main", _good)], pieces.append, ExternalParameters(), tags=TagSelection(["nothing"]), streaming=True
        )

    def read(path: str, spec: TensorSpec) -> Any:
        raise OSError(f"{path}: unreadable")

    def weighted(ctx: Any, x: Any) -> dict[str, Any]:
        weight = Parameter(SPEC.shape)
        weight._name = "weight"
        return {"y": ctx.ops.add(x, ctx.parameter(weight))}

    with pytest.raises(OSError, match="weight: unreadable"):
        lower_module([_point("main", weighted)], pieces.append, InlineParameters(read), streaming=True)
    assert not pieces
