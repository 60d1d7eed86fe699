from typing import Any

import numpy as np
import pytest

from lang_core import (
    CheckpointError,
    ConfigError,
    EagerExecutionContext,
    MappingWeights,
    OpError,
    TapelineError,
    TensorSpec,
    i32,
)
from transformer_core.flow import Block, CompileProfile, FlowContext, FlowModel, FlowValue, ModelFlow
from transformer_core.layers._linear import Linear

PROFILE = CompileProfile.preset("encoder", sequence=3)
INPUT = ModelFlow("m").input("x", ("T", 4))
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


class Arrays(MappingWeights):
    """Remembers what was read."""

    def __init__(self, **arrays: np.ndarray) -> None:
        super().__init__({name.replace("__", "."): array for name, array in arrays.items()}, "arrays.bin")
        self.reads: list[str] = []

    def read(self, key: str) -> np.ndarray:
        self.reads.append(key)
        return super().read(key)


def _weights() -> Arrays:
    return Arrays(
        a__w=np.arange(20, dtype=np.float32).reshape(5, 4) / 10,
        a__square=np.eye(4, dtype=np.float32),
        a__ids=np.array([2, 0, 1], np.int32),
        a__unused=np.zeros((2,), np.float32),
    )


def _model(function: Any, weights: Any = None, profile: CompileProfile = PROFILE) -> FlowModel:
    return INPUT.custom("load", function).build(profile, _weights() if weights is None else weights)


def _run(model: FlowModel) -> np.ndarray:
    return model(EagerExecutionContext(model.weights), X)["output"].numpy()


def test_a_key_is_one_parameter_however_often_it_is_loaded():
    loads: list[FlowValue] = []

    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        loads.extend([flow.load_param("a.w"), flow.load_param("a.w", transpose=True), flow.load_param("a.w")])
        loads.append(flow.load_param("a.w", transpose=True, shape=(4, 5)))
        return flow.emit("dot_general", x, loads[1], contract=((1,), (0,)))

    model = _model(load)
    np.testing.assert_allclose(_run(model), X @ _weights().read("a.w").T, rtol=1e-6)
    assert loads[0] is loads[2]
    assert loads[1] is loads[3]
    assert loads[0] is not loads[1]
    assert [path for path, _ in model.named_parameters()] == ["a.w"]
    loaded = model.trace().loaded
    assert [(entry.parameter.path, entry.key) for entry in loaded] == [("a.w", "a.w")]


def test_two_orientations_are_two_values_over_one_tensor():
    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        for transpose in (False, True):
            flow.load_param("a.w", transpose)
        loads.extend((asked.key, asked.transpose) for asked in flow.state.loaded)
        paths.extend(parameter.path for parameter in flow.state.parameters.values())
        return x

    loads: list[tuple[str, bool]] = []
    paths: list[str] = []
    model = _model(load)
    assert model.weights is not None
    _run(model)
    assert loads == [("a.w", False), ("a.w", True)]
    assert paths == ["a.w"]


def test_nothing_is_read_before_the_model_runs():
    weights = _weights()
    model = _model(lambda flow, x: flow.emit("add", x, flow.load_param("a.square", shape=(4, 4)), spec=None), weights)
    with pytest.raises(OpError):
        model.trace()  # [3, 4] + [4, 4]
    assert weights.reads == []


def test_dtypes_are_the_profiles_and_integers_stay():
    specs: list[TensorSpec] = []

    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        specs.extend(flow.load_param(key).spec for key in ("a.w", "a.ids"))
        specs.append(flow.load_param("a.w", dtype="f32").spec)
        return flow.emit("take", flow.load_param("a.w", dtype="f32"), flow.load_param("a.ids"))

    model = _model(load, profile=CompileProfile.preset("encoder", sequence=3, dtype="bf16"))
    assert dict(model.named_parameters()).keys() == {"a.w", "a.ids", "a.w.as_f32"}
    assert specs == [TensorSpec((5, 4), "bf16"), TensorSpec((3,), "i32"), TensorSpec((5, 4), "f32")]
    assert model.weights is not None
    actual = model(EagerExecutionContext(model.weights), X.astype(model.profile.dtype.numpy))["output"].numpy()
    np.testing.assert_array_equal(actual, _weights().read("a.w")[[2, 0, 1]])
    assert model.weights.spec("a.w.as_f32") == TensorSpec((5, 4), "f32")
    np.testing.assert_array_equal(model.weights.read_rows("a.w.as_f32", 1, 3), _weights().read("a.w")[1:3])
    assert model.weights.origin("a.w.as_f32") == "arrays.bin"
    assert model.weights.encoding("a.w.as_f32") is None


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            lambda flow: flow.load_param("a.ww"),
            r"load_param\('a.ww'\) at load: the weights have no such key; did you mean",
        ),
        (
            lambda flow: flow.load_param("a.w", shape=(4, 5)),
            r"load_param\('a.w'\) at load: expected shape \[4, 5\], found \[5, 4\] \(stored as f32\[5,4\] in arr",
        ),
        (
            lambda flow: flow.load_param("a.w", transpose=True, shape=(5, 4)),
            r"at load, transposed: expected shape \[5, 4\], found \[4, 5\] \(stored as f32\[5,4\]",
        ),
        (
            lambda flow: flow.load_param("a.ids", True),
            r"load_param\('a.ids'\) at load, transposed: expected a matrix; arra",
        ),
    ],
)
def test_what_cannot_be_loaded_names_key_shapes_and_place(load: Any, message: str):
    with pytest.raises(CheckpointError, match=message):
        _model(lambda flow, x: load(flow)).trace()


def test_a_synthesised_parameter_is_a_weight_of_the_flow():
    array = np.arange(4, dtype=np.float32)
    model = _model(lambda flow, x: flow.emit("mul", x, flow.synth_param("ramp", array)))
    np.testing.assert_array_equal(_run(model), X * array)
    np.testing.assert_array_equal(_run(model), X * array)  # the second run makes it again
    assert [path for path, _ in model.named_parameters()] == ["ramp"]
    weights = model.weights
    assert weights is not None
    assert list(weights.keys())[-1] == "ramp"
    assert [weights.has(key) for key in ("ramp", "a.w", "a.ww")] == [True, True, False]
    assert weights.origin("ramp") == "synthesised by the flow"
    np.testing.assert_array_equal(weights.read_rows("ramp", 1, 3), array[1:3])
    with pytest.raises(ValueError, match="read-only"):
        weights.read("ramp")[0] = 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.w", r"synth_param\('a.w'\) at load: the name is taken by a tensor of the weights: choose another"),
        ("twice", "the name is taken by a synthesised parameter"),
        ("layers.1.weight", "the name is taken by a module's parameter"),
    ],
)
def test_a_name_stands_for_one_parameter(name: str, message: str):
    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        flow.synth_param("twice", np.zeros(3, np.float32))
        return flow.synth_param(name, np.zeros(3, np.float32))

    recipe = INPUT.repeat_layers(2, lambda build: Linear(4, 4)).custom("load", load)
    with pytest.raises(ConfigError, match=message):
        recipe.build(PROFILE, _weights()).trace()


def test_a_key_of_a_modules_parameter_is_that_parameter():
    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        return flow.emit("linear", x, flow.load_param("proj.weight"))

    weights = Arrays(proj__weight=np.arange(16, dtype=np.float32).reshape(4, 4))
    model = INPUT.stage("proj", lambda build: Linear(4, 4)).custom("load", load).build(PROFILE, weights)
    assert [path for path, _ in model.named_parameters()] == ["proj.weight"]
    matrix = weights.read("proj.weight")
    np.testing.assert_allclose(_run(model), X @ matrix.T @ matrix.T, rtol=1e-6)


def test_what_the_model_does_not_use_is_reported():
    model = _model(lambda flow, x: flow.emit("add", flow.load_param("a.w"), flow.load_param("a.w", dtype="bf16")))
    report = model.audit(strict=False)
    assert report.used == ("a.w",)
    assert report.unexpected == ("a.square", "a.ids", "a.unused")
    with pytest.raises(CheckpointError, match=r"'a.square' in arrays\.bin is not the model's"):
        model.audit()
    with pytest.raises(ConfigError, match=r"flow 'm': it was built without weights: pass build\(\.\., weights=\.\.\)"):
        INPUT.build(PROFILE).audit()


def test_parameters_are_synthesised_without_weights_in_the_models_dtype():
    def mirrored(flow: FlowContext, x: FlowValue) -> FlowValue:
        turn = flow.synth_param("turn", np.eye(4)[::-1], shape=(4, 4))  # f64
        moved = flow.synth_zeros("shift", (4,))
        order = flow.synth_param("order", [2, 0, 1])
        turned = flow.emit("dot_general", x, turn, contract=((1,), (0,)))
        assert (turn.dtype, moved.dtype, order.dtype) == (flow.profile.dtype, flow.profile.dtype, i32)
        return flow.emit("take", flow.emit("add", turned, moved), order)

    for dtype in ("f32", "bf16"):
        model = INPUT.custom("mirrored", mirrored).build(CompileProfile.preset("encoder", sequence=3, dtype=dtype))
        x = X.astype(model.profile.dtype.numpy)
        for weights in (None, model.weights, MappingWeights({})):
            actual = model(EagerExecutionContext(weights), x)["output"].numpy()
            np.testing.assert_array_equal(actual, x[[2, 0, 1], ::-1])
        assert {path: repr(parameter.spec) for path, parameter in model.named_parameters()} == {
            "turn": f"{dtype}[4,4]",
            "shift": f"{dtype}[4]",
            "order": "i32[3]",
        }
        assert list(model.weights.keys()) == ["turn", "shift", "order"]
        with pytest.raises(CheckpointError, match="flow, built without weights"):
            model.weights.read("x")


def test_a_context_with_weights_of_the_name_reads_these():
    recipe = INPUT.custom("scaled", lambda flow, x: flow.emit("mul", x, flow.synth_param("gain", np.ones(4))))
    model = recipe.build(PROFILE)
    trained = MappingWeights({"gain": np.full(4, 3, np.float32)})
    np.testing.assert_array_equal(model(EagerExecutionContext(trained), X)["output"].numpy(), 3 * X)
    ctx = EagerExecutionContext()
    with ctx.parameters_from({"gain": ctx.constant(np.full(4, 5, np.float32))}):
        np.testing.assert_array_equal(model(ctx, X)["output"].numpy(), 5 * X)


def test_synthesised_parameters_of_a_repeated_layer_have_names_per_layer():
    class Scaled(Block):
        def __init__(self, index: int) -> None:
            self._index = index

        def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
            return flow.emit("mul", values[0], flow.synth_param("gain", np.full(4, self._index + 2.0)))

    layer = ModelFlow("layer").stage("inner.scaled", lambda build: Scaled(build.index))
    for layers, path in ((layer, "layers.{}.gain"), (lambda build: Scaled(build.index), "layers.{}.gain")):
        model = INPUT.repeat_layers(3, layers).build(PROFILE)
        assert [name for name, _ in model.named_parameters()] == [path.format(index) for index in range(3)]
        np.testing.assert_array_equal(model(EagerExecutionContext(), X)["output"].numpy(), X * 24)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": np.eye(3), "shape": (4, 4)}, r"synth_param\('s'\) at load: expected shape \[4, 4\]; found \[3, 3\]"),
        ({"data": [1e39, 0.0]}, r"synth_param\('s'\) at load: 1e\+39 does not fit f32: pass dtype=, or other values"),
        ({"data": [1.0, 0.5], "dtype": "i32"}, "0.5 does not fit i32"),
        ({"data": [1, 300], "dtype": "u8"}, "300 does not fit u8"),
        ({"data": [1.0], "dtype": "f33"}, "unknown dtype 'f33'"),
        ({"data": ["a"]}, r"synth_param\('s'\) at load: "),
        ({"data": np.ones(2, np.complex64)}, r"unknown dtype 'complex64'"),
    ],
)
def test_synthesised_values_are_held_to_shape_and_dtype(arguments: Any, message: str):
    recipe = INPUT.custom("load", lambda flow, x: flow.synth_param("s", **arguments))
    with pytest.raises(ConfigError, match=message):
        recipe.build(PROFILE).trace()


def test_modules_of_another_shape_than_the_weights():
    recipe = INPUT.stage("a.w", lambda build: Linear(4, 3))
    with pytest.raises(
        CheckpointError, match=r"'a.w.weight' in arrays.bin has shape \[7, 4\], the model needs \[3, 4\]"
    ):
        recipe.build(PROFILE, Arrays(a__w__weight=np.zeros((7, 4), np.float32))).audit()


def test_a_tied_head_may_be_stored_once_more():
    recipe = ModelFlow("m").input("ids", ("B", "T"), "i32").token_embed(5, 4, name="model.embed").lm_head(tied=True)
    both = Arrays(model__embed__weight=np.zeros((5, 4), np.float32), lm_head__weight=np.zeros((5, 4), np.float32))
    report = recipe.build(PROFILE, both).audit()
    assert (report.used, report.tied, report.unexpected) == (("model.embed.weight",), ("lm_head.weight",), ())


def test_the_orientation_is_a_flag_and_not_a_word():
    wrong: Any = "yes"
    model = _model(lambda flow, x: (flow.load_param("a.w", wrong), x)[1])
    with pytest.raises(ConfigError, match=r"FlowContext\.load_param: transpose: expected true or false; found 'yes'"):
        _run(model)


def _keyed(arrays: dict[str, np.ndarray]) -> MappingWeights:
    return MappingWeights(arrays, "arrays.bin")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_a_key_in_two_dtypes_is_not_taken_for_another_key(order: tuple[int, ...]):
    """``w.as_bf16`` is the name that a second dtype of ``w`` has, and a tensor of its own here."""
    stored = {"w": np.full(4, 1.0, np.float32), "w.as_bf16": np.full(4, 2.0, np.float32)}
    stored["w.as_bf16_"] = np.full(4, 3.0, np.float32)
    asked = [("w", "f32", 1.0), ("w", "bf16", 1.0), ("w.as_bf16", "f32", 2.0)]

    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        for key, dtype, value in [*(asked[place] for place in order), ("w.as_bf16_", None, 3.0)]:
            tensor = flow.load_param(key, dtype=dtype).tensor
            if isinstance(flow.ctx, EagerExecutionContext):
                seen.append((np.asarray(tensor.numpy(), np.float32)[0], value))
        return x

    seen: list[tuple[float, float]] = []
    model = _model(load, _keyed(stored))
    for _ in range(2):
        model(EagerExecutionContext(model.weights), X)
    assert [one for one, _ in seen] == [value for _, value in seen]
    names = [path for path, _ in model.named_parameters()]
    assert len(set(names)) == 4
    assert model.weights is not None
    for path in names:
        assert model.weights.has(path)


def test_a_synthesised_parameter_is_not_taken_for_a_second_dtype():
    def load(flow: FlowContext, x: FlowValue) -> FlowValue:
        flow.load_param("w", dtype="f32")
        flow.load_param("w", dtype="bf16")
        return flow.emit("mul", x, flow.synth_param("w.as_bf16", np.full(4, 5.0)))

    with pytest.raises(ConfigError, match="the name is taken by a tensor that is loaded in a second dtype"):
        _run(_model(load, _keyed({"w": np.ones(4, np.float32)})))


@pytest.mark.parametrize("key", ["_orig_mod.w", "_w", "", "a._b.c", ".", "w."])
def test_any_key_of_the_weights_can_be_loaded(key: str):
    stored = {key: np.arange(4, dtype=np.float32)}
    model = _model(lambda flow, x: flow.emit("mul", x, flow.load_param(key)), _keyed(stored))
    np.testing.assert_array_equal(_run(model), X * np.arange(4, dtype=np.float32))
    ((path, parameter),) = model.named_parameters()
    assert path == parameter.path != ""
    assert model.weights is not None
    np.testing.assert_array_equal(model.weights.read(path), stored[key])
    assert model.audit().unexpected == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda flow: flow.synth_zeros("s", 4),
        lambda flow: flow.synth_zeros("s", None),
        lambda flow: flow.synth_zeros("s", "4"),
        lambda flow: flow.synth_zeros("s", (2.0,)),
        lambda flow: flow.synth_zeros("s", (True,)),
        lambda flow: flow.synth_zeros("s", (-1,)),
        lambda flow: flow.synth_zeros(3, (1,)),
        lambda flow: flow.synth_zeros("", (1,)),
        lambda flow: flow.synth_param("s", np.ones(4), shape=4),
        lambda flow: flow.synth_param("s", object()),
        lambda flow: flow.synth_param("s", None),
        lambda flow: flow.synth_param("s", np.ones(4), dtype=4),
        lambda flow: flow.synth_param("s", np.ones(4), dtype=[]),
        lambda flow: flow.synth_param("s", [[1, 2], [3]]),
        lambda flow: flow.synth_zeros("s", (10**12, 10**12)),
        lambda flow: flow.emit(4, flow.read("x")),
        lambda flow: flow.input(None),
        lambda flow: flow.delta_state(Linear(1, 1)),
        lambda flow: flow.store_delta_state(None, None),
        lambda flow: flow.stream(["a"]),
        lambda flow: flow.named(4),
        lambda flow: flow.read(4),
        lambda flow: flow.load_param(4),
        lambda flow: flow.load_param("a.w", shape=5),
        lambda flow: flow.load_param("a.w", dtype=5),
        lambda flow: flow.load_param("a.w", dtype=["f32"]),
        lambda flow: flow.load_param("a.w", transpose=1),
    ],
)
def test_arguments_of_a_wrong_type_are_typed_errors(call: Any):
    with pytest.raises(TapelineError) as error:
        _run(_model(lambda flow, x: (call(flow), x)[1]))
    assert len(str(error.value)) > 20
