"""Jax, the eager context, StableHLO's reference interpreter and IREE give the same for every op and composite.

By default a device runs the composites and a drawn third of the ops, each of which tests/emission runs there;
TAPELINE_LONG=1 in the environment asks for all, and for more trials of each.
"""

import functools
import inspect
import os
import random
from pathlib import Path
from typing import Final

import pytest

from lang_core import OPS, EagerExecutionContext
from run_iree import Session, compile_module, target_of_device
from tests.differential._graphs import Checked, graph_of, sample
from tests.differential.strategies import STRATEGIES, Trial, difference, drawn, eagerly, truths
from tests.emission._support import interpret, text_of

# Trials per op, each some work of jax's compiler.
_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_COUNT: Final = 28 if _LONG else 8
_SEED: Final = 43
_INTERPRETED: Final = 6 if _LONG else 2
_COMPILED: Final = 1
_DEVICE: Final = "local-task"
# Functions differ by so many units in the last place more than eager ones do.
_STEPS: Final = 2.0
_LEAVES: Final = {"parameter"}
# The method of ctx.ops that is not called as its op is.
_METHODS: Final = {"while": "while_loop"}
# What IREE 3.13 cannot link.
_UNLINKED: Final = ("sin", "cos", "rem")


def _methods() -> set[str]:
    of_ops = inspect.getmembers(type(EagerExecutionContext().ops), inspect.isfunction)
    return {name for name, _ in of_ops if not name.startswith("_")}


def test_every_composite_has_a_strategy_and_every_strategy_an_op():
    """Checks composites, and that nothing is left of ops that are gone; tests/adding checks that no op lacks one."""
    assert _methods() - set(_METHODS.values()) - set(OPS) <= set(STRATEGIES)
    assert set(STRATEGIES) <= set(OPS) - _LEAVES | _methods()


@functools.cache
def _checked(name: str) -> list[Checked]:
    trials = drawn(name, _COUNT)
    return list(zip(trials, truths(trials), strict=True))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_eager_agrees_with_jax(name: str):
    checked = _checked(name)
    assert len(checked) > _COUNT // 4
    wrong = [wrong for trial, truth in checked if (wrong := difference(trial, truth, eagerly(trial)))]
    assert not wrong, f"{len(wrong)} of {len(checked)}; the shortest: {min(wrong, key=len)}"


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_interpreter_agrees_with_jax(name: str):
    for trial, truth in sample(_checked(name), _INTERPRETED):
        results = interpret(graph_of(trial, "trial"), trial.inputs)
        assert difference(trial, truth, results, _STEPS) is None


def test_device_agrees_with_jax(tmp_path: Path):
    """One module of all, for a compiler run costs more than a function."""
    names = sorted(STRATEGIES)
    if not _LONG:
        ops = [name for name in names if name in OPS]
        drawn_ops = random.Random(_SEED).sample(ops, len(ops) // 3)
        names = [name for name in names if name not in OPS or name in drawn_ops]
        print(f"ops drawn with seed {_SEED}: {', '.join(sorted(drawn_ops))}; TAPELINE_LONG=1 runs all")
    every = [pair for name in names for pair in sample(_compilable(name), _COMPILED)]
    assert every
    graphs = [graph_of(trial, f"trial_{i}") for i, (trial, _) in enumerate(every)]
    source, output = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    source.write_text(text_of(graphs))
    compile_module(source, output, target_of_device(_DEVICE))
    wrong: list[str] = []
    with Session(output, _DEVICE) as session:
        for graph, (trial, truth) in zip(graphs, every, strict=True):
            results = [tensor.numpy() for tensor in session.function(graph.name)(*trial.inputs)]
            wrong += filter(None, [difference(trial, truth, results, _STEPS)])
    assert not wrong, f"{len(wrong)} of {len(every)}: " + "\n".join(sorted(wrong, key=len))


def _compilable(name: str) -> list[Checked]:
    return [(trial, truth) for trial, truth in _checked(name) if not _refused(trial)]


def _refused(trial: Trial) -> bool:
    """True if IREE 3.13 refuses it: three functions of f64, and strides along a padded axis of one element."""
    unlinked = trial.name in _UNLINKED and trial.dtypes == ("f64",)
    return unlinked or (trial.name == "conv" and 1 in trial.inputs[0].shape[1:-1])
