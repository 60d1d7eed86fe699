"""Programs that update tensors in place compute on every engine what they compute with NumPy.

A sample of the drawn programs runs by default. With TAPELINE_LONG=1 in the environment, TAPELINE_PROGRAMS programs run
on each engine (docs/lab/2026-11-28-updates-in-place.md); what is compiled for llvm-cpu runs on both of its devices.
"""

import os
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from lang_core import EagerExecutionContext
from tests.differential._shrink import _is_valid, shrunk
from tests.differential._update_engines import Engine, differences, engines_of
from tests.differential._updates import UPDATES, Body, Step, UpdateProgram, drawn_program

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_PROGRAMS: Final = int(os.environ.get("TAPELINE_PROGRAMS", "100000")) if _LONG else 24
_FIRST: Final = int(os.environ.get("TAPELINE_FIRST_PROGRAM", "0"))
_BATCH: Final = 64 if _LONG else 24
_CHEAP: Final = ("graph", "interpreter", "xla", "mesh", "jax")
# IREE compiles for a second what others compute in a hundredth of it: a part of the sample runs on its devices.
_DEVICES: Final = {"llvm-cpu": 2, "vmvx": 4}


@pytest.mark.parametrize("name", [*_CHEAP, *_DEVICES])
def test_drawn_updates_agree_with_numpy(name: str, tmp_path: Path) -> None:
    engine = engines_of()[name]
    seeds = range(_FIRST, _FIRST + _PROGRAMS, 1 if _LONG else _DEVICES.get(name, 1))
    wrong: list[str] = []
    for begin in range(0, len(seeds), _BATCH):
        batch = seeds[begin : begin + _BATCH]
        programs = [drawn_program(seed) for seed in batch]
        faults = differences(name, engine, programs, tmp_path)
        wrong += [f"seed {batch[one.place]}: {one.message}" for one in faults]
        if len(wrong) == len(faults) > 0:
            wrong.append(_smallest(name, engine, programs[faults[0].place], tmp_path))
        if _LONG:
            print(f"{name}: {begin + len(batch)} programs", *(wrong[-len(faults) :] if faults else ()), flush=True)
    assert not wrong, f"{name}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", ["xla", "mesh"])
def test_updates_that_xla_got_wrong(name: str, tmp_path: Path) -> None:
    """A put at one place, and a carried value that no round changes, of which an update is computed."""
    programs = [drawn_program(seed) for seed in (104250, 104816)]
    assert not differences(name, engines_of()[name], programs, tmp_path)


def _smallest(name: str, engine: Engine, program: UpdateProgram, folder: Path) -> str:
    """Returns a shrunk program that fails, and how."""
    smaller = shrunk(program, lambda one: _fails(name, engine, one, folder), 40)
    return f"shrunk:\n{smaller}\n{''.join(one.message for one in differences(name, engine, [smaller], folder))}"


def _fails(name: str, engine: Engine, program: UpdateProgram, folder: Path) -> bool:
    return bool(differences(name, engine, [program], folder))


def _ops(steps: tuple[Step, ...]) -> set[str]:
    return {step.op for step in steps} | {op for step in steps for body in step.bodies for op in _ops(body.steps)}


def test_the_sample_has_every_kind_of_update_region_and_donation() -> None:
    programs = [drawn_program(seed) for seed in range(24)]
    drawn = {op for program in programs for op in _ops(program.body.steps)}
    assert drawn >= {*UPDATES, "loop", "branch", "block", "slice", "dynamic_slice", "reshape"}
    assert any(program.donated for program in programs)


def test_the_sample_has_updates_of_constants() -> None:
    """A quarter of the programs has a constant in the place of an argument."""
    programs = [drawn_program(seed) for seed in range(3, 24, 4)]
    constants = [step.results[0] for program in programs for step in program.body.steps if step.op == "constant"]
    assert len(constants) >= 4
    assert any(
        step.op in UPDATES and step.operands[0] == constant
        for program in map(drawn_program, range(3, 400, 4))
        for constant in [first.results[0] for first in program.body.steps[:1] if first.op == "constant"]
        for step in program.body.steps
    )


def test_a_program_is_shrunk_to_what_fails() -> None:
    program = next(
        p for p in map(drawn_program, range(100)) if "loop" in _ops(p.body.steps) and "put" in _ops(p.body.steps)
    )
    smaller = shrunk(program, lambda one: "put" in _ops(one.body.steps))
    assert "put" in _ops(smaller.body.steps)
    assert len(_ops(smaller.body.steps)) < len(_ops(program.body.steps))


def test_a_smaller_program_that_indexes_past_its_end_is_none() -> None:
    """Left without its outer part, a program may ask for an axis or an element that is not there."""
    x = np.arange(6, dtype=np.float32)
    step = Step("turned", (0,), (1, 1), (1,))
    with pytest.raises(IndexError):
        UpdateProgram((x,), Body((0,), (step,), (1,)), ())(EagerExecutionContext(), EagerExecutionContext().constant(x))
    assert not _is_valid(UpdateProgram((x,), Body((0,), (step,), (1,)), ()))
