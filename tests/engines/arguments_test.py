"""Sessions of every engine take arrays, tensors and numbers, and name arguments as they were lowered."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import run_iree
import run_jax.sessions
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, portable_text
from compile_hlo.portable import write_artifact
from lang_core import Argument, DeviceError, EagerExecutionContext, EntryPoint, OperatorError, TensorSpec
from run_jax import JaxExecutionContext

X = np.arange(6, dtype=np.float32).reshape(2, 3)
F32, F16, BF16, BOOL = (TensorSpec((), dtype) for dtype in ("f32", "f16", "bf16", "bool"))


def scaled(ctx: Any, x: Any, factor: Any, half: Any, brain: Any, flag: Any, count: Any, one: Any) -> dict[str, Any]:
    ops = ctx.ops
    y = ops.add(ops.mul(x, factor), ops.cast(ops.add(ops.cast(half, "f32"), ops.cast(brain, "f32")), "f32"))
    y = ops.select(flag, y, ops.negate(y))
    return {"y": ops.add(y, ops.cast(ops.add(count, ops.reshape(one, ())), "f32"))}


POINT = EntryPoint(
    "scaled",
    scaled,
    (
        Argument("x", TensorSpec((2, 3), "f32")),
        Argument("factor", F32),
        Argument("half", F16),
        Argument("brain", BF16),
        Argument("flag", BOOL),
        Argument("count", TensorSpec((), "i32"), kind="scalar"),
        Argument("one", TensorSpec((1,), "i32")),
    ),
)
EAGER, JAX = EagerExecutionContext(), JaxExecutionContext()
# Arguments of the same values, in each form in which they may come.
FORMS: dict[str, list[Any]] = {
    "arrays": [
        X,
        np.array(2, np.float32),
        np.array(0.5, np.float16),
        np.array(0.25, ml_dtypes.bfloat16),
        np.array(True),
        np.array(3, np.int32),
        np.array([4], np.int32),
    ],
    "scalars of NumPy": [
        X,
        np.float32(2),
        np.float16(0.5),
        ml_dtypes.bfloat16(0.25),
        np.bool_(True),
        np.int64(3),
        np.array([4], np.int32),
    ],
    "numbers": [X, 2.0, 0.5, 0.25, True, 3, 4],
    "integers for floats": [X, 2, 0.5, 0.25, True, 3, 4],
    "strided": [np.asfortranarray(X), 2.0, 0.5, 0.25, True, 3, np.array([4, 5], np.int32)[::2]],
    "eager tensors": [
        EAGER.constant(X),
        EAGER.constant(2.0),
        EAGER.constant(0.5, "f16"),
        EAGER.constant(0.25, "bf16"),
        EAGER.constant(True),
        EAGER.constant(3),
        EAGER.constant([4]),
    ],
    "tensors of JAX": [
        JAX.constant(X),
        JAX.constant(2.0),
        JAX.constant(0.5, "f16"),
        JAX.constant(0.25, "bf16"),
        JAX.constant(True),
        JAX.constant(3),
        JAX.constant([4]),
    ],
    "arrays of JAX": [
        jnp.asarray(X),
        jnp.float32(2),
        jnp.float16(0.5),
        jnp.bfloat16(0.25),
        jnp.asarray(True),
        jnp.int32(3),
        jnp.asarray([4], jnp.int32),
    ],
}
ENGINES = ("iree", "jax")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("scaled")
    text: list[str] = []
    lowered = lower_module([POINT], text.append, ExternalParameters(), streaming=True)
    module = folder / "module.mlir"
    module.write_text("".join(text))
    run_iree.compile_module(module, folder / "module.vmfb", target="llvm-cpu")
    portable = folder / "portable.mlir"
    portable.write_text("".join(portable_text(module, {}, {"scaled": ()})))
    write_artifact(portable, folder / "module.vhlo")
    signatures = [function.signature for function in lowered.functions]
    with (
        run_iree.Session(folder / "module.vmfb", "local-task") as iree,
        run_jax.sessions.Session(folder / "module.vhlo", signatures=signatures) as jax,
    ):
        yield {"iree": iree, "jax": jax}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_each_form_gives_the_same_bits(engine: str, form: str, sessions: dict[str, Any]) -> None:
    (y,) = sessions[engine].function("scaled")(*FORMS[form])
    wanted = scaled(EAGER, *FORMS["arrays"])["y"].numpy()
    assert np.asarray(y).tobytes() == wanted.tobytes()
    assert (np.asarray(y).dtype, y.spec.shape) == (wanted.dtype, (2, 3))


def _with(place: int, value: Any) -> list[Any]:
    values = list(FORMS["numbers"])
    values[place] = value
    return values


WRONG: dict[str, tuple[int, Any, str]] = {
    "shape": (0, X.T, r"'x' is f32\[2,3\], found an array of shape \(3, 2\)"),
    "dtype": (0, X.astype(np.float64), r"'x' is f32\[2,3\], found an array of shape \(2, 3\) and dtype float64"),
    "dtype of a tensor": (0, EAGER.constant(X, "f16"), r"'x' is f32\[2,3\], found an array of .* dtype float16"),
    "list": (0, X.tolist(), r"'x' is f32\[2,3\], found a list"),
    "number for a matrix": (0, 1.0, r"'x' is f32\[2,3\], found a float"),
    "scalar of another dtype": (
        1,
        np.float64(2),
        r"'factor' is f32\[\], found an array of .* dtype float64",
    ),
    "bool for a float": (1, True, r"'factor' is f32\[\], found a bool"),
    "float beyond f16": (2, 1e6, r"'half' is f16\[\], found a float"),
    "int beyond floats": (1, 10**400, r"'factor' is f32\[\], found an? int"),
    "int for a bool": (4, 1, r"'flag' is bool\[\], found an? int"),
    "float for an integer": (6, 1.0, r"'one' is i32\[1\], found a float"),
    "integer out of range": (6, 2**31, r"'one' is i32\[1\], found an? int"),
    "float for a scalar": (5, np.array(0.5), "'count' is a number of dtype i32, found 0.5"),
    "row for a scalar": (5, np.array([3]), "'count' is a number of dtype i32, found ndarray"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("engine", ENGINES)
def test_errors_name_the_argument_as_it_was_lowered(engine: str, name: str, sessions: dict[str, Any]) -> None:
    place, value, message = WRONG[name]
    with pytest.raises(DeviceError, match=rf"^'scaled': argument {message}"):
        sessions[engine].function("scaled")(*_with(place, value))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wrong_number_of_arguments(engine: str, sessions: dict[str, Any]) -> None:
    names = r"\(x, factor, half, brain, flag, count, one\)"
    with pytest.raises(DeviceError, match=rf"'scaled' takes 7 arguments {names}, found 1"):
        sessions[engine].function("scaled")(X)


USES: dict[str, Callable[[Any], object]] = {
    "mul": lambda y: 0.5 * y,
    "add an array": lambda y: X + y,
    "subscript": lambda y: y[0],
    "np.tanh": np.tanh,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_read_and_not_computed_with(engine: str, sessions: dict[str, Any]) -> None:
    (y,) = sessions[engine].function("scaled")(*FORMS["numbers"])
    for use in USES.values():
        with pytest.raises(OperatorError, match=r"tensor on a device \(f32\[2,3\]\): read it, x = tensor.numpy\(\)"):
            use(y)
    assert np.allclose(y, y.numpy())
    assert np.asarray(y, np.float64).dtype == np.float64


@pytest.mark.parametrize("engine", ENGINES)
def test_tensors_of_a_context_are_uploaded(engine: str, sessions: dict[str, Any]) -> None:
    session = sessions[engine]
    for value in (X, EAGER.constant(X), JAX.constant(X), jnp.asarray(X)):
        assert session.upload(value).numpy().tolist() == X.tolist()
