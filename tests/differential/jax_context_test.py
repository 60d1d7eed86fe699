"""The context whose arrays are JAX's gives what NumPy's gives for every op, and what jax gives for composites."""

import os
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from compile_dag import TAG
from compile_dag.testing import DRAWN, PROGRAMS, Program, eager, input_tensors
from lang_core import OPS, as_dtype
from run_jax import RULES, jax_function
from tests.differential._graphs import sample
from tests.differential._jax import in_jax
from tests.differential.strategies import STRATEGIES, Trial, difference, drawn, truths
from tests.emission._all_cases import ALL_CASES
from tests.emission._support import assert_agrees, eager_results

# Loops and branches are methods of the context.
_CONTROL: Final = {"while", "cond"}
_STEPS: Final = 2.0
# TAPELINE_LONG=1 in the environment asks for every dtype, and for more drawn calls.
_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_DRAWN: Final = 6 if _LONG else 2
# Scales are subnormal numbers there, which XLA flushes to 0.
_SUBNORMAL: Final = ("dequantize_every_exponent_mxfp4",)
_DTYPES: Final = ("bool", "f32", "bf16", "i32")


def test_every_rule_is_of_an_op():
    """Checks that nothing is left of ops that are gone; tests/adding checks that no op lacks a rule."""
    assert set(RULES) <= set(OPS) - _CONTROL | {TAG.name}


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_case_agrees_with_numpys_context(op: str):
    cases = [case for case in ALL_CASES if case.op == op and (_LONG or case.dtype.name in _DTYPES)]
    cases = [case for case in cases if case.name not in _SUBNORMAL]
    assert cases
    results = in_jax([(case.fn, case.inputs, False) for case in cases])
    for case, arrays in zip(cases, results, strict=True):
        assert_agrees([np.asarray(array) for array in arrays], eager_results(case), case)


@pytest.mark.parametrize("name", sorted(STRATEGIES if _LONG else set(STRATEGIES) - set(OPS)))
def test_drawn_calls_agree_with_jax(name: str):
    drawings = [trial for trial in drawn(name, _DRAWN * 2) if not _has_subnormal(trial)]
    checked = sample(list(zip(drawings, truths(drawings), strict=True)), _DRAWN)
    results = in_jax([(trial.call, trial.inputs, trial.named) for trial, _ in checked])
    for (trial, truth), arrays in zip(checked, results, strict=True):
        assert difference(trial, truth, [np.asarray(array) for array in arrays], _STEPS) is None


@settings(DRAWN, max_examples=1000 if _LONG else 40)
@given(program=PROGRAMS)
def test_drawn_programs_have_numpys_dtypes_and_shapes(program: Program):
    """Traced, and not compiled: loops, branches, weights and all dtypes, each op's contract checked on the way."""
    ctx = eager()
    weights = {"inner.scale": jnp.ones(3, jnp.float32), "inner.shift": jnp.ones((2, 1), jnp.float16)}
    inputs = [tensor.numpy() for tensor in input_tensors(ctx).values()]
    wanted = program(ctx, *input_tensors(ctx).values())
    with jax.enable_x64(True):
        traced = jax.eval_shape(jax_function(program), weights, *inputs)
    assert list(traced) == list(wanted)
    for name, array in traced.items():
        assert (array.shape, array.dtype) == (wanted[name].shape, wanted[name].dtype.numpy), name


def _has_subnormal(trial: Trial) -> bool:
    """True if an input has a number that XLA may flush to 0."""
    floating = (x.astype(np.float64) for x in trial.inputs if as_dtype(x.dtype).is_floating)
    return any(np.any((x != 0) & (np.abs(x) < 2.0**-126)) for x in floating)
