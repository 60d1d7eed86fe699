import ast
from pathlib import Path

from lang_core import OPS
from lang_core.ops._refusals_testing import FAMILIES


def _tests_beside_this_one() -> set[str]:
    trees = [ast.parse(path.read_text()) for path in Path(__file__).parent.glob("_refusals_*_test.py")]
    nodes = [node for tree in trees for node in tree.body]
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    aliases = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {name.removeprefix("test_") for name in functions | aliases if name.startswith("test_")}


def test_every_constraint_has_its_negative_test() -> None:
    tests = _tests_beside_this_one()
    for family, names in FAMILIES.items():
        for number in range(1, 4):
            if f"{family}_c{number}" in tests:
                tests |= {f"{name}_c{number}" for name in names}
    known = {f"{name}_c{i}" for name, op in OPS.items() for i in range(1, len(op.constraints) + 1)}
    assert not known - tests, f"constraints without a negative test: {sorted(known - tests)}"


def test_every_negative_test_has_its_constraint() -> None:
    ops = {name: len(op.constraints) for name, op in OPS.items()}
    families = {family: max(ops[name] for name in names) for family, names in FAMILIES.items()}
    for test in _tests_beside_this_one():
        name, _, number = test.rpartition("_c")
        assert 1 <= int(number) <= (ops | families).get(name, 0), f"test_{test}: there is no such constraint"
