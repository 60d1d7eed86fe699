"""One failure for an op that lacks something: what is missing, and the file and line to write it at.

Run this test first after adding an op; CONTRIBUTING.md has the list in words.
"""

import copy
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

import compile_dag.gradient
import compile_hlo.emit
import run_jax
from lang_core import OPS, Op
from lang_core.ops._refusals_testing import FAMILIES
from tests.differential.strategies import STRATEGIES
from tests.emission._all_cases import ALL_CASES
from tests.layering._sources import workspace_root
from tests.values._grid import FLOATS, INTEGERS, OTHERS, probes
from tools.docs._dtype_rules import DTYPE_RULES

_ROOT: Final = workspace_root()
_LANGUAGE: Final = "lang_core.ops."


class Need(NamedTuple):
    """Part that every op needs.

    Attributes:
        what: the part, and how it is written.
        has: returns True if an op has the part.
        files: paths to write it in; ``{kind}`` is the file of the op's kind, such as ``elementwise``.
        spared: ops that need no such part.
    """

    what: str
    has: Callable[[Op], bool]
    files: tuple[str, ...]
    spared: Collection[str] = ()


def _refused(op: Op) -> bool:
    texts = [path.read_text() for path in (_ROOT / "lang_core/ops").glob("_refusals_*_test.py")]
    names = [op.name, *(family for family, members in FAMILIES.items() if op.name in members)]
    return all(
        any(re.search(rf"\btest_{name}_c{number}\b", text) for name in names for text in texts)
        for number in range(1, len(op.constraints) + 1)
    )


def _probed(op: Op) -> bool:
    names = {probe.name for dtype in (*FLOATS, *INTEGERS) for probe in probes(dtype)}
    return any(name == op.name or name.startswith(f"{op.name}_") for name in names)


def _named_in(pattern: str) -> Callable[[Op], bool]:
    """Returns whether a test names an op, in quotes or as a method."""
    paths = [path for path in _ROOT.glob(pattern) if not path.name.startswith("_refusals_")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return lambda op: re.search(rf"[\"'.]{op.name}[\"'(,)]", text) is not None


def _documented(page: str) -> Callable[[Op], bool]:
    text = (_ROOT / "docs" / page).read_text(encoding="utf-8")
    return lambda op: f"`{op.name}`" in text or f"### {op.name}\n" in text


_GRADIENTS: Final = {*compile_dag.gradient.RULES, *compile_dag.gradient.NOT_DIFFERENTIABLE}
_GRADIENT_TESTED: Final = _named_in("compile_dag/gradient/*_test.py")
_CASES: Final = {case.op for case in ALL_CASES}
NEEDS: Final = (
    Need(
        "an emission rule: a function with @emits, or a row of the file's table",
        lambda op: op.name in compile_hlo.emit.RULES,
        ("compile_hlo/emit/_{kind}.py",),
        ("constant", "parameter"),
    ),
    Need(
        "a rule in jax.numpy: a function with @computes, or a row of the file's table",
        lambda op: op.name in run_jax.RULES,
        ("run_jax/_{kind}.py",),
        ("while", "cond"),  # methods of the context
    ),
    Need(
        "a gradient rule: a function with @gradient_of, or its name in not_differentiable(reason, ...)",
        lambda op: op.name in _GRADIENTS,
        ("compile_dag/gradient/_{kind}.py",),
    ),
    Need(
        "a test of its gradient against jax, such as a row of a table of the file",
        lambda op: op.name in compile_dag.gradient.NOT_DIFFERENTIABLE or _GRADIENT_TESTED(op),
        ("compile_dag/gradient/_{kind}_test.py",),
        ("while", "packed_linear", "packed_expert_linear"),  # by while_loop; in tests/gradients
    ),
    Need(
        "a test of its eager rule, such as a row of a table of the file",
        _named_in("lang_core/ops/*_test.py"),
        ("lang_core/ops/_{kind}_test.py",),
    ),
    Need("a refusal per constraint: test_NAME_c1, ...", _refused, ("lang_core/ops/_refusals_math_test.py",)),
    Need("a case of the emission tests", lambda op: op.name in _CASES, ("tests/emission/_op_cases.py",)),
    Need(
        "a strategy, @trials, which draws calls and says in jax.numpy what they give",
        lambda op: op.name in STRATEGIES,
        ("tests/differential/_{kind}.py",),
        ("parameter",),
    ),
    Need(
        "a probe at special values, or its name in OTHERS if its values are those of an index, a shape or a bit",
        _probed,
        ("tests/values/_grid.py",),
        OTHERS,
    ),
    Need("a rule for its results' dtypes", lambda op: op.name in DTYPE_RULES, ("tools/docs/_dtype_rules.py",)),
    Need("a section: python -m tools.docs.ops_doc", _documented("ops.md"), ("docs/ops.md",)),
    Need("a row: python -m tools.docs.status_doc", _documented("status.md"), ("docs/status.md",)),
)


def missing(op: Op, neighbours: Collection[str]) -> list[str]:
    """Returns a line for each part that an op lacks: file and line, and the part.

    Args:
        op: the op.
        neighbours: ops of the same kind, the nearest first: a part is written beside theirs.
    """
    kind = op.shape_rule.__module__.removeprefix(_LANGUAGE).removeprefix("_")
    lines = []
    for need in NEEDS:
        if op.name not in need.spared and not need.has(op):
            path = need.files[0].format(kind=kind)
            lines.append(f"{_place(path, neighbours)}: {need.what}")
    return lines


def _place(path: str, neighbours: Collection[str]) -> str:
    """Returns a path with the line of the nearest neighbour that the file names; its folder if the file is missing."""
    if not (_ROOT / path).is_file():
        return f"{Path(path).parent} (a file {Path(path).name}, imported by __init__.py)"
    lines = (_ROOT / path).read_text(encoding="utf-8").splitlines()
    for name in neighbours:
        named = re.compile(rf"[\"'` ]{name}(?:[\"'` ]|$)")
        numbers = [number for number, line in enumerate(lines, 1) if named.search(line)]
        numbers.sort(key=lambda number: not lines[number - 1].lstrip().startswith(f'"{name}":'))  # rows of tables
        if numbers:
            return f"{path}:{numbers[0]} (beside {name!r})"
    return path


def neighbours_of(op: Op) -> list[str]:
    """Returns the other ops of a kind, those that are declared nearest first."""
    names = [name for name, other in OPS.items() if other.shape_rule.__module__ == op.shape_rule.__module__]
    own = names.index(op.name) if op.name in names else len(names)
    return sorted((name for name in names if name != op.name), key=lambda name: abs(names.index(name) - own))


def test_every_op_has_all_that_an_op_needs() -> None:
    """Reports everything that new ops lack at once."""
    lacking = {op.name: missing(op, neighbours_of(op)) for op in OPS.values()}
    text = "\n".join(
        f"the op {name!r} lacks\n" + "\n".join(f"  {line}" for line in lines)
        for name, lines in lacking.items()
        if lines
    )
    assert not text, f"{text}\nCONTRIBUTING.md, 'An op', says more."


def test_a_new_op_is_told_each_part_with_its_file_and_a_line() -> None:
    new = copy.copy(OPS["floor"])
    object.__setattr__(new, "name", "thrown_away")
    lines = missing(new, ["floor"])
    assert len(lines) == len(NEEDS)
    for need, line in zip(NEEDS, lines, strict=True):
        match = re.fullmatch(r"([\w/.]+?)(:\d+ \(beside 'floor'\))?: (.*)", line)
        assert match, line
        assert (_ROOT / match[1]).is_file()
        assert (match[2] is None) == ("refusal" in line), line  # those of a family stand under its name
        assert match[3] == need.what
