from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, Module, Parameter


class Linear(Module):
    def __init__(self, outputs: int, inputs: int) -> None:
        self.weight = Parameter((outputs, inputs))
        self.bias = Parameter((outputs,), "bf16")

    def forward(self, ctx: Any, paths: list[str]) -> None:
        paths.append(ctx.module_path)


class Layer(Module):
    def __init__(self) -> None:
        self.self_attn = Linear(3, 4)
        self.experts = (Linear(2, 3), Linear(2, 3))

    def forward(self, ctx: Any, paths: list[str]) -> None:
        paths.append(ctx.module_path)
        self.self_attn(ctx, paths)
        self.experts[1](ctx, paths)
        paths.append(ctx.module_path)


class Model(Module):
    def __init__(self) -> None:
        self.embed = Parameter((7, 4))
        self.layers = [Layer(), Layer()]
        self.head = self.embed  # tied
        self.size = 4

    def forward(self, ctx: Any, paths: list[str]) -> None:
        for layer in self.layers:
            layer(ctx, paths)


def test_paths_are_the_attributes_from_the_root() -> None:
    model = Model()
    assert model.path == ""
    assert model.layers[1].experts[0].path == "layers.1.experts.0"
    assert repr(model.layers[0].self_attn.bias) == "Parameter('layers.0.self_attn.bias', bf16[3])"


def test_parameters_come_in_the_order_of_the_attributes_and_once() -> None:
    names = [path for path, _ in Model().named_parameters()]
    per_layer = [f"{part}.{name}" for part in ("self_attn", "experts.0", "experts.1") for name in ("weight", "bias")]
    assert names == ["embed", *[f"layers.{i}.{name}" for i in range(2) for name in per_layer]]


def test_a_tied_parameter_keeps_its_first_path() -> None:
    model = Model()
    assert model.head is model.embed
    assert model.head.path == "embed"


def test_paths_follow_when_a_root_becomes_a_part() -> None:
    class Causal(Module):
        def __init__(self) -> None:
            self.model = Model()

    assert Causal().model.layers[0].self_attn.weight.path == "model.layers.0.self_attn.weight"
    assert next(Causal().named_parameters())[0] == "model.embed"


def test_a_part_walks_its_own_parameters_only() -> None:
    layer = Model().layers[1]
    assert [path for path, _ in layer.self_attn.named_parameters()] == [
        "layers.1.self_attn.weight",
        "layers.1.self_attn.bias",
    ]


def test_the_module_path_follows_the_calls() -> None:
    ctx, paths = EagerExecutionContext(), []
    Model()(ctx, paths)
    one = ["layers.{}", "layers.{}.self_attn", "layers.{}.experts.1", "layers.{}"]
    assert paths == [path.format(i) for i in range(2) for path in one]
    assert ctx.module_path == ""


def test_the_module_path_is_restored_after_an_exception() -> None:
    class Fails(Module):
        def forward(self, ctx: Any) -> None:
            seen.append(ctx.module_path)
            raise RuntimeError("stop")

    class Catches(Module):
        def __init__(self) -> None:
            self.inner = Fails()

        def forward(self, ctx: Any) -> None:
            with pytest.raises(RuntimeError, match="stop"):
                self.inner(ctx)
            seen.append(ctx.module_path)
            self.inner(ctx)

    class Root(Module):
        def __init__(self) -> None:
            self.part = Catches()

        def forward(self, ctx: Any) -> None:
            self.part(ctx)

    seen: list[str] = []
    ctx = EagerExecutionContext()
    ctx.module_path = "before"
    with pytest.raises(RuntimeError, match="stop"):
        Root()(ctx)
    assert seen == ["part.inner", "part", "part.inner"]
    assert ctx.module_path == "before"


def test_private_attributes_are_no_parts() -> None:
    class Keeps(Module):
        def __init__(self) -> None:
            self.weight = Parameter((2,))
            self._other = Linear(2, 3)

    assert [path for path, _ in Keeps().named_parameters()] == ["weight"]


def test_a_module_without_forward_says_so() -> None:
    class Empty(Module):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty defines no forward\(ctx, ...\)"):
        Empty()(EagerExecutionContext())


def test_other_attributes_are_left_alone() -> None:
    model = Model()
    model.sizes = [1, np.zeros(2)]
    assert model.size == 4
    assert len(list(model.named_parameters())) == 13


def test_a_part_that_was_appended_too_late_is_refused() -> None:
    model = Model()
    model.layers.append(Layer())
    with pytest.raises(
        ConfigError, match=r"module '': layers holds a Layer that was put into the list after .*: fill the"
    ):
        list(model.named_parameters())
