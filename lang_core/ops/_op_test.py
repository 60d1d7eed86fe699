"""Tests of the whole table: a shape rule gives the specs of what the eager rule returns."""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from lang_core import (
    DTYPES,
    ENCODINGS,
    OPS,
    DType,
    EagerExecutionContext,
    GraphError,
    Literal,
    OpError,
    Ops,
    TensorSpec,
    as_dtype,
)
from lang_core.ops._op import Op, define_op
from lang_core.ops._refusals_testing import FAMILIES, Returning
from lang_core.ops._samples_testing import CTX

Call = tuple[list[str], tuple[Any, ...]]


class _Region(Returning):
    """A region that gives ones of its specs (False for bool, so that a loop ends)."""

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(np.zeros(s.shape, s.dtype.numpy) if s.dtype.name == "bool" else np.ones(s.shape, s.dtype.numpy)
                     for s in self.result_specs)  # fmt: skip


_PRED = TensorSpec((), "bool")

# Operand shapes (before a shape "i" is i32, "b" bool, "q" i8, "f" f32) and attributes; D is the dtype that is tried.
CALLS: dict[str, list[Call]] = {
    "select": [(["b2,1", "3", ""], ()), (["b", "", ""], ()), (["b0", "", "1"], ())],
    "clamp": [(["2,3", "", "3"], ()), (["", "", ""], ())],
    "cast": [(["2,3"], (dtype,)) for dtype in DTYPES] + [([""], (as_dtype("bf16"),))],
    "broadcast": [(["3"], ((2, 3),)), ([""], ((),)), ([""], ((2, 0),))],
    "reshape": [(["2,3"], ((3, 2),)), (["1"], ((),)), (["0,2"], ((5, 0),))],
    "transpose": [(["2,3"], ((1, 0),)), ([""], ((),))],
    "concat": [(["2,3", "2,0", "2,4"], (1,)), (["2"], (0,))],
    "slice": [(["7,3"], ((1, 0), (6, 3), (2, 1))), ([""], ((), (), ()))],
    "pad": [(["2,3", ""], ((1, 0), (0, 2), (2, 0))), (["", ""], ((), (), ())), (["0", ""], ((1,), (0,), (3,)))],
    "reverse": [(["2,3"], ((0, 1),)), ([""], ((),))],
    "iota": [([], ((2, 3), 1, "D")), ([], ((0,), 0, "D"))],
    "constant": [([], ("literal",))],
    "cumsum": [(["2,3"], (1,)), (["0"], (0,))],
    "sort": [(["2,3"], (1, True)), (["2,3"], (0, False)), (["0"], (0, True))],
    "dynamic_slice": [(["4,3", "i", "i"], ((2, 3),)), ([""], ((),))],
    "dynamic_update_slice": [(["4,3", "2,1", "i", "i"], ()), (["", ""], ())],
    "take": [(["4,3", "i5,2"], (1,)), (["4", "i"], (0,)), (["0,2", "i0"], (0,))],
    "gather": [(["4,3", "i4,5"], (1,)), (["0", "i0"], (0,))],
    "scatter": [(["4,3", "i4,2", "4,2"], (1, how)) for how in ("set", "add", "mul", "max", "min")],
    "put": [
        (["4,3,2", "i4,2", "4,2,2"], (1,)),
        (["4,3", "i4,0", "4,0"], (1,)),
        (["0,2", "i0,1", "0,1"], (1,)),
        (["4,3", "i4,2", "4,2", "b4,2"], (1,)),
    ],
    "dot_general": [(["2,3", "3,4"], ((1,), (0,), (), (), "D")), (["", ""], ((), (), (), (), "D"))]
    + [(["5,2,3", "3,5"], ((2,), (0,), (0,), (1,), wide)) for wide in ("D", "f32", "f64", "i32", "i64")],
    "conv": [(["2,9,6", "3,3,4"], ((2,), ((1, 0),), (2,), 2)), (["2,3,6", "5,6,4"], ((1,), ((0, 0),), (1,), 1))],
    "while": [(["2,3", ""], (Returning(_PRED), "region", 2)), (["2", "3"], (Returning(_PRED), "region", 1))],
    "cond": [(["b", "2,3"], ("region", "region"))],
    "cached_attention": [
        (["2,3,4,5,16", "2,3,7,16", "2,3,7,8", "f1,5,7"], (0.5,)),
        (["2,3,4,5,16", "6,3,7,16", "6,3,7,8", "f2,5,7", "i2"], (0.5,)),
        (["2,3,4,5,16", "6,3,7,16", "6,3,7,8", "f2,5,21", "i2,3"], (0.5,)),
    ],
    "packed_cached_attention": [
        (["2,3,4,5,32", "q2,3,7,34", "q2,3,7,68", "f1,5,7"], (0.5, ENCODINGS["q8_0"])),
        (["2,3,4,5,64", "q6,3,7,36", "q6,3,7,18", "f2,5,21", "i2,3"], (0.5, ENCODINGS["q4_0"])),
    ],
    "quantize": [
        (["2,0,64"], (ENCODINGS["q8_0"],)),
        (["2,3,64"], (ENCODINGS["q8_0"],)),
        (["32"], (ENCODINGS["q4_0"],)),
    ],
    "block_quantize": [(["2,3,64"], (8,)), (["32"], (16,))],
    "packed_linear": [
        (["2,64", "q5,68"], (ENCODINGS["q8_0"], "D", "exact")),
        (["32", "q3,18"], (ENCODINGS["q4_0"], "D", "q8")),
    ],
    "block_product": [
        (["q2,1,64", "f2,2", "i2,2", "q5,68"], (ENCODINGS["q8_0"], "D")),
        (["q2,32", "f1", "i1", "q3,18"], (ENCODINGS["q4_0"], "D")),
        (["q2,2,512", "f2,16", "i2,16", "q5,288"], (ENCODINGS["q4_k"], "D")),
        (["q1,256", "f8", "i8", "q3,210"], (ENCODINGS["q6_k"], "D")),
    ],
    "packed_expert_linear": [
        (["2,3,64", "i4", "q5,7,68"], (ENCODINGS["q8_0"], "D", "exact")),
        (["1,1,256", "i3", "q5,0,144"], (ENCODINGS["q4_k"], "D", "q8")),
    ],
    "expert_block_product": [
        (["q2,3,1,64", "f2,3,2", "i2,3,2", "i4", "q5,7,68"], (ENCODINGS["q8_0"], "D")),
        (["q1,1,2,256", "f1,1,8", "i1,1,8", "i3", "q2,3,210"], (ENCODINGS["q6_k"], "D")),
    ],
    "dequantize": [
        (["q3,36"], (ENCODINGS["q4_0"], "D")),
        (["q34"], (ENCODINGS["q8_0"], "D")),
        (["q3,288"], (ENCODINGS["q4_k"], "D")),
        (["q210"], (ENCODINGS["q6_k"], "D")),
    ],
}
CALLS |= {
    name: [(["2,3", "3"], ()), (["", ""], ()), (["0,2", "1"], ())]
    for name in FAMILIES["elementwise"]
    if name != "clamp"
}
CALLS |= {name: [(["2,3"], ()), ([""], ()), (["0"], ())] for name in FAMILIES["unary"]}
CALLS |= {
    name: [(["2,3"], ((1,), False)), (["2,3"], ((0, 1), True)), (["2,3"], ((), False)), ([""], ((), True))]
    for name in FAMILIES["reduction"]
}
CALLS |= {
    name: [(["2,3"], (0, False)), (["2,3"], (1, True)), (["4"], (0, False))] for name in FAMILIES["arg_reduction"]
}


def _operand(text: str, dtype: DType) -> TensorSpec:
    named = {"i": "i32", "b": "bool", "q": "i8", "f": "f32"}.get(text[:1])
    return TensorSpec(tuple(int(dim) for dim in text.lstrip("ibqf").split(",") if dim), named or dtype)


def _attribute(op: Op, value: Any, specs: tuple[TensorSpec, ...], dtype: DType) -> Any:
    if value == "region":
        return _Region(*(specs[1:] if op.name == "cond" else specs[:1]))
    if isinstance(value, Returning):
        return _Region(*value.result_specs)
    if value == "literal":
        return Literal(np.ones((2, 3), dtype.numpy))
    if value == "D":
        return dtype
    return as_dtype(value) if isinstance(value, str) and op.name == "dot_general" else value


@pytest.mark.parametrize("name", OPS)
def test_results_are_of_the_inferred_spec(name: str) -> None:
    op, computed = OPS[name], 0
    for dtype, (texts, raw) in itertools.product(DTYPES, CALLS[name]):
        specs = tuple(_operand(text, dtype) for text in texts)
        attributes = tuple(_attribute(op, value, specs, dtype) for value in raw)
        if name == "while":
            attributes = (attributes[0], _Region(*specs[: raw[2]]), raw[2])
        try:
            wanted = op.infer_afresh(specs, attributes)
        except OpError:
            continue  # this op does not take this dtype, which the negative tests show
        arrays = [np.zeros(s.shape, s.dtype.numpy) for s in specs]
        with np.errstate(all="ignore"):
            results = op.eager_rule(*arrays, *attributes)
        for spec, result in zip(wanted, results if isinstance(results, tuple) else (results,), strict=True):
            assert (result.shape, result.dtype) == (spec.shape, spec.dtype.numpy), (specs, attributes)
        computed += 1
    assert computed


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.only_moves])
def test_ops_that_move_elements_give_numpy_nothing_to_warn_of(name: str) -> None:
    """They run without ``np.errstate``: the caller's settings must not matter, whatever bits the elements have."""
    op, draw = OPS[name], np.random.default_rng(42)
    for dtype, (texts, raw) in itertools.product(DTYPES, CALLS[name]):
        specs = tuple(_operand(text, dtype) for text in texts)
        attributes = tuple(_attribute(op, value, specs, dtype) for value in raw)
        arrays = [
            np.frombuffer(draw.bytes(s.nbytes), s.dtype.numpy if s.dtype.name != "bool" else np.uint8).reshape(s.shape)
            for s in specs
        ]
        arrays = [array % 2 == 1 if s.dtype.name == "bool" else array for array, s in zip(arrays, specs, strict=True)]
        with np.errstate(all="raise"), warnings.catch_warnings():
            warnings.simplefilter("error")
            CTX.apply(op, tuple(map(CTX.constant, arrays)), attributes)


@pytest.mark.parametrize("name", FAMILIES["elementwise"])
def test_results_of_mixed_dtypes_are_of_the_inferred_spec(name: str) -> None:
    op = OPS[name]
    for dtypes in itertools.product(DTYPES, repeat=3 if name == "clamp" else 2):
        specs = tuple(TensorSpec((2, 3)[i:], dtype) for i, dtype in enumerate(dtypes))
        try:
            (wanted,) = op.infer(specs, ())
        except OpError:
            continue
        result = CTX.apply(op, tuple(np.ones(s.shape, s.dtype.numpy) for s in specs))[0]
        assert (result.numpy().shape, result.numpy().dtype) == (wanted.shape, wanted.dtype.numpy), specs


def test_an_op_is_declared_once() -> None:
    with pytest.raises(GraphError, match="the op 'add' is in the table already: declare each op once"):
        define_op("add", summary="", shape_rule=tuple, eager_rule=tuple)


def test_an_op_knows_its_name_and_how_a_call_reads() -> None:
    op = OPS["reshape"]
    assert repr(op) == "<op reshape>"
    assert op.call_text((TensorSpec((2, 3), "f32"),), ((6,),)) == "reshape(f32[2,3], shape=(6,))"


def test_specs_are_remembered_and_the_memory_is_bounded() -> None:
    op = Op("counted", summary="", shape_rule=lambda x: (x,), eager_rule=lambda x: x)
    spec = TensorSpec((3,), "f32")
    first = op.infer((spec,), ())
    assert op.infer((TensorSpec((3,), "f32"),), ()) is first
    for dim in range(5000):
        op.infer((TensorSpec((dim,), "f32"),), ())
    assert len(op._memo) <= 4096


def test_every_op_is_a_method_with_a_docstring() -> None:
    renamed = {"while": "while_loop"}
    for name, op in OPS.items():
        assert op.summary.endswith("."), name
        method = getattr(Ops, renamed.get(name, name))
        assert method.__doc__, name
        assert callable(getattr(EagerExecutionContext().ops, renamed.get(name, name)))
