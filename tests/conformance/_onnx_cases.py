"""ONNX's operator cases, and what becomes of each."""

import dataclasses
import functools
import warnings
from typing import Any, Final

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from compile_dag import ComputeGraph, record
from lang_core import EagerExecutionContext, ExecutionContext, Tensor, TensorSpec
from tests.conformance._onnx_graph import known_inputs, run_model
from tests.conformance._onnx_node import Array, NotExpressible, dtype_of

# ONNX's reference computes in the operands' dtype, we in f32: so near must 16-bit results be.
_RTOL: Final = {"float16": 2e-3, "bfloat16": 2e-2}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A model with inputs and the outputs that ONNX expects.

    Attributes:
        name: unique.
        model: of one node, or of several.
        inputs: by name.
        outputs: in order.
        rtol: relative tolerance of floating outputs.
        atol: absolute tolerance of floating outputs.
        about: the op that the case is about; its first node's where empty.
    """

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: list[Any]
    rtol: float = 1e-3
    atol: float = 1e-7
    about: str = ""

    @property
    def ops(self) -> tuple[str, ...]:
        """The kinds of its nodes."""
        return tuple(dict.fromkeys(node.op_type for node in self.model.graph.node))

    @property
    def kind(self) -> str:
        """The op that the case is about: of ONNX's expanded cases, the op that was written out."""
        return self.about or self.ops[0]

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """Inputs that must be known at compile time.

        Raises:
            NotExpressible: the op table cannot say what the model computes.
        """
        for array in (*self.inputs.values(), *self.outputs):
            if not isinstance(array, np.ndarray | np.generic):
                raise NotExpressible("sequences and optional values: the op table has tensors only")
        for array in self.outputs:
            dtype_of(np.asarray(array))
        for proto in self.model.graph.input:
            given = self.inputs.get(proto.name)
            if given is not None:
                dtype_of(given)
        return known_inputs(self.model, self.inputs)

    @functools.cached_property
    def reason(self) -> str | None:
        """Returns why the op table cannot express what the model computes; None where it can."""
        try:
            _ = self.known
        except NotExpressible as error:
            return str(error)
        return None

    @property
    def arguments(self) -> dict[str, Array]:
        """The inputs that are known at run time only."""
        return {name: array for name, array in self.inputs.items() if name not in self.known}

    def __call__(self, ctx: ExecutionContext, *tensors: Tensor) -> list[Tensor]:
        """Computes or records the case, its arguments given."""
        known = {name: self.inputs[name] for name in self.known}
        return run_model(ctx, self.model, dict(zip(self.arguments, tensors, strict=True)), known)

    def eager(self) -> list[Array]:
        """Returns the results of the eager context."""
        ctx = EagerExecutionContext()
        return [tensor.numpy() for tensor in self(ctx, *map(ctx.constant, self.arguments.values()))]

    def graph(self) -> ComputeGraph:
        """The case recorded."""
        arguments = self.arguments.values()
        specs = [TensorSpec(array.shape, dtype_of(array)) for array in arguments]
        return record(self, *specs, input_names=[f"x{i}" for i in range(len(specs))], name=self.name)

    def check(self, results: list[Array]) -> None:
        """Compares results with what ONNX expects: dtype, shape and values, floating ones within the tolerance.

        Raises:
            AssertionError: they differ.
        """
        assert len(results) == len(self.outputs), f"{len(results)} results, not {len(self.outputs)}"
        for mine, wanted in zip(results, map(np.asarray, self.outputs), strict=True):
            specs = f"{mine.dtype}{mine.shape}, not {wanted.dtype}{wanted.shape}"
            assert (mine.dtype, mine.shape) == (wanted.dtype, wanted.shape), specs
            if wanted.dtype.kind in "fV":
                rtol = max(self.rtol, _RTOL.get(wanted.dtype.name, 0.0))
                a, b = mine.astype(np.float64), wanted.astype(np.float64)
                np.testing.assert_allclose(a, b, rtol, max(self.atol, rtol * 1e-3), err_msg=self.name)
            else:
                np.testing.assert_array_equal(mine, wanted, err_msg=self.name)


@functools.cache
def onnx_cases() -> tuple[Case, ...]:
    """All operator cases of the installed onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its references divide by zero, on purpose
        testcases = [testcase for testcase in collect_testcases() if testcase.model is not None]
    # A case written out in simpler ops bears its origin's name, and may add "_ver<operator set>".
    cases = [_case(testcase) for testcase in testcases]
    whole = {case.name: case.ops[0] for case in cases if "_expanded" not in case.name}
    about = [dataclasses.replace(case, about=whole.get(case.name.partition("_expanded")[0], "")) for case in cases]
    return tuple(sorted(about, key=lambda case: case.name))


def expressible_cases() -> tuple[Case, ...]:
    """Those that the op table can say."""
    return tuple(case for case in onnx_cases() if case.reason is None)


def _case(testcase: Any) -> Case:
    inputs, outputs = testcase.data_sets[0]
    names = [proto.name for proto in testcase.model.graph.input]
    given = dict(zip(names, map(_data, inputs), strict=False))
    return Case(testcase.name, testcase.model, given, list(map(_data, outputs)), testcase.rtol, testcase.atol)


def _data(value: Any) -> Any:
    """An array where it is one: a NumPy scalar's, a TensorProto's."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value
