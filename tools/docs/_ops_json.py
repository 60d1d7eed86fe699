"""The op table as data, for tools of other languages: docs/ops.json, whose schema is docs/ops.schema.json."""

import inspect
import json
from typing import Any, Final

from compile_dag.gradient import NOT_DIFFERENTIABLE
from compile_dag.gradient import RULES as GRADIENT_RULES
from compile_hlo.emit import RULES as EMISSION_RULES
from compile_hlo.passes import LOWERED
from lang_core import DTYPES, OPS, Op, Ops
from run_jax import RULES as JAX_RULES
from tools.docs._dtype_rules import DTYPE_RULES

SCHEMA_VERSION: Final = 1

# Operands of ops whose rules take them as one sequence; a star marks any number, a question mark at most one.
_OPERANDS: Final = {
    "concat": ("tensors*",),
    "cond": ("pred", "captures*"),
    "dynamic_slice": ("x", "starts*"),
    "dynamic_update_slice": ("x", "update", "starts*"),
    "cached_attention": ("q", "k", "v", "bias", "rows?"),
    "packed_cached_attention": ("q", "k", "v", "bias", "rows?"),
    "put": ("x", "indices", "updates", "where?"),
    "while": ("init*", "captures*"),
}
# Functions of JAX's context rather than rules.
_JAX_FUNCTIONS: Final = ("cond", "while")
_COUNTS: Final = {"*": "any", "?": "optional"}


def table() -> dict[str, Any]:
    """Returns the op table as JSON's values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "dtypes": [
            {"name": dtype.name, "bytes": dtype.itemsize, "kind": _kind(dtype.is_floating, dtype.is_integer)}
            for dtype in DTYPES
        ],
        "ops": [_row(op) for op in OPS.values()],
    }


def render_json() -> str:
    """The file."""
    return json.dumps(table(), indent=1, ensure_ascii=False) + "\n"


def _kind(is_floating: bool, is_integer: bool) -> str:
    return "floating" if is_floating else "integer" if is_integer else "bool"


def _row(op: Op) -> dict[str, Any]:
    return {
        "name": op.name,
        "summary": op.summary,
        "operands": [_operand(name) for name in operand_names(op)],
        "attributes": list(op.attributes),
        "constraints": [
            {"label": f"{op.name}_c{number}", "text": text} for number, text in enumerate(op.constraints, 1)
        ],
        "result_dtypes": DTYPE_RULES[op.name].words,
        "rules": {
            "eager": callable(op.eager_rule),
            "stablehlo": op.name in EMISSION_RULES
            or op.name in {*LOWERED, "constant"},  # a constant is written where it is used
            "gradient": op.name in GRADIENT_RULES,
            "jax": op.name in JAX_RULES or op.name in _JAX_FUNCTIONS,
        },
        "no_gradient_because": NOT_DIFFERENTIABLE.get(op.name),
    }


def operand_names(op: Op) -> tuple[str, ...]:
    """Returns the names of an op's operands, with a mark where their number varies."""
    if op.name in _OPERANDS:
        return _OPERANDS[op.name]
    parameters = list(inspect.signature(op.shape_rule).parameters.values())
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return tuple(inspect.signature(getattr(Ops, op.name)).parameters)[1:]
    return tuple(parameter.name for parameter in parameters[: len(parameters) - len(op.attributes)])


def _operand(name: str) -> dict[str, str]:
    return {"name": name.rstrip("*?"), "count": _COUNTS.get(name[-1], "one")}
