import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compile_dag import Node, record, regions_of
from lang_core import OPS
from tests.emission._all_cases import ALL_CASES
from tools.docs._dtype_rules import DTYPE_RULES
from tools.docs._ops_json import operand_names, render_json, table

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "ops.schema.json").read_text(encoding="utf-8"))
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}
DESCRIPTIVE = {"$schema", "title", "description", "$defs"}


def problems(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yields where a value breaks a schema, of the keywords that ours has."""
    for keyword, wanted in schema.items():
        match keyword:
            case "$ref":
                yield from problems(value, SCHEMA["$defs"][wanted.rpartition("/")[2]], where)
            case "type":
                names = wanted if isinstance(wanted, list) else [wanted]
                if not any(type(value) is TYPES[name] for name in names):
                    yield f"{where}: {value!r} is no {wanted}"
            case "const" | "enum":
                if value not in (wanted if keyword == "enum" else [wanted]):
                    yield f"{where}: {value!r} is not {wanted}"
            case "required":
                yield from (f"{where}: no {name}" for name in wanted if name not in value)
            case "additionalProperties":
                yield from (f"{where}: {name} is unknown" for name in value if name not in schema["properties"])
            case "properties":
                for name in wanted.keys() & value.keys():
                    yield from problems(value[name], wanted[name], f"{where}.{name}")
            case "items":
                for index, item in enumerate(value):
                    yield from problems(item, wanted, f"{where}[{index}]")
            case "pattern":
                if not re.search(wanted, value):
                    yield f"{where}: {value!r} does not match {wanted}"
            case "minimum" | "minLength":
                if (value if keyword == "minimum" else len(value)) < wanted:
                    yield f"{where}: {value!r} is below {wanted}"
            case _:
                assert keyword in DESCRIPTIVE, f"the test does not know the schema's keyword {keyword}"


def test_the_file_is_up_to_date() -> None:
    text = (DOCS / "ops.json").read_text(encoding="utf-8")
    assert text == render_json(), "run: bazel run //tools/docs:ops_doc"


def test_the_file_fulfils_its_schema() -> None:
    assert list(problems(table(), SCHEMA, "ops.json")) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda row: row.pop("summary"), "no summary"),
        (lambda row: row.update(more=1), "more is unknown"),
        (lambda row: row["rules"].update(jax="yes"), "'yes' is no boolean"),
        (lambda row: row["operands"][0].update(count="two"), "'two' is not"),
        (lambda row: row["constraints"][0].update(label="C1"), "does not match"),
    ],
)
def test_the_schema_refuses_other_tables(change: Any, problem: str) -> None:
    changed = copy.deepcopy(table())
    change(changed["ops"][1])
    assert problem in "; ".join(problems(changed, SCHEMA, "ops.json"))


def test_every_op_is_there_with_its_contract() -> None:
    rows = {row["name"]: row for row in table()["ops"]}
    assert list(rows) == list(OPS)
    for op in OPS.values():
        row = rows[op.name]
        assert (row["summary"], tuple(row["attributes"])) == (op.summary, op.attributes)
        assert [constraint["text"] for constraint in row["constraints"]] == list(op.constraints)
        assert row["rules"]["eager"]
        assert row["rules"]["stablehlo"]
        assert row["rules"]["gradient"] == (row["no_gradient_because"] is None)
    assert {row["name"] for row in rows.values() if not row["operands"]} == {"iota", "constant"}


def _nodes(nodes: Any) -> Iterator[Node]:
    for node in nodes:
        yield node
        for region in regions_of(node):
            yield from _nodes(region.nodes)


def test_operands_and_dtypes_hold_for_every_case_of_every_op() -> None:
    shown = set()
    for case in ALL_CASES:
        graph = record(case.fn, *case.specs, input_names=[f"x{i}" for i in range(len(case.specs))], name="f")
        for node in _nodes(graph.nodes):
            if node.op.name not in OPS:
                continue
            shown.add(node.op.name)
            names = operand_names(node.op)
            least = sum(name[-1] not in "*?" for name in names)
            assert len(node.inputs) >= least, node
            assert (names[-1:] and names[-1][-1] == "*") or len(node.inputs) <= len(names), node
            attributes = dict(zip(node.op.attributes, node.attributes, strict=True))
            wanted = DTYPE_RULES[node.op.name].dtypes(tuple(value.dtype for value in node.inputs), attributes)
            assert tuple(value.dtype for value in node.results) == wanted, (node, node.inputs)
    assert shown == set(OPS)
