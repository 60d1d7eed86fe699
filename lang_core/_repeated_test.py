"""Modules that are made when asked for."""

from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, Module, Parameter, Repeated, TensorSpec


class Inner(Module):
    def __init__(self, size: int) -> None:
        self.weight = Parameter((size,))


class Layer(Module):
    def __init__(self, size: int) -> None:
        self.inner = Inner(size)
        self.bias = Parameter((size,))

    def forward(self, ctx: Any, x: Any) -> Any:
        assert ctx.module_path == self.path
        return ctx.ops.add(ctx.ops.mul(x, ctx.parameter(self.inner.weight)), ctx.parameter(self.bias))


class Model(Module):
    def __init__(self, count: int) -> None:
        self.first = Parameter((3,))
        self.layers = Repeated(count, lambda index: Layer(index + 1))
        self.last = Parameter((4,))


def test_paths_and_specs_are_those_of_a_list() -> None:
    parameters = dict(Model(2).named_parameters())
    assert list(parameters) == [
        "first",
        "layers.0.inner.weight",
        "layers.0.bias",
        "layers.1.inner.weight",
        "layers.1.bias",
        "last",
    ]
    assert parameters["layers.1.bias"].spec == TensorSpec((2,), "f32")


def test_no_parameter_is_lost_though_identities_repeat() -> None:
    assert sum(1 for _ in Model(500).named_parameters()) == 2 * 500 + 2


def test_it_is_a_sequence() -> None:
    layers = Model(3).layers
    assert len(layers) == 3
    assert layers[-1].path == "layers.2"
    assert [layer.path for layer in layers[1:]] == ["layers.1", "layers.2"]
    assert layers[0] is not layers[0]
    with pytest.raises(IndexError):
        layers[3]


def test_its_modules_run() -> None:
    class Weights:
        def spec(self, key: str) -> TensorSpec:
            return TensorSpec((1,), "f32")

        def read(self, key: str) -> np.ndarray:
            return np.array([2.0 if key == "layers.0.inner.weight" else 5.0], np.float32)

    ctx = EagerExecutionContext(Weights())  # pyright: ignore[reportArgumentType]
    layer = Model(1).layers[0]
    assert layer(ctx, np.array([3.0], np.float32)).numpy().tolist() == [11.0]
