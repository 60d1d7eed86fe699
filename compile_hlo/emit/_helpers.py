"""Helper functions: private functions that rules share, written once per module, in StableHLO.

A target may have better code for one than its compiler makes of the StableHLO. It chooses by the function's record
(``run_iree/kernels``), which stands in the function's head; pure StableHLO does without, because its portable form
drops attributes of functions.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from compile_hlo.directions import Attribute, KernelArgument, KernelResult, KernelSignature
from compile_hlo.emit._builder import Write
from compile_hlo.emit._types import quoted, spec_of, symbol, tensor_type, unquoted
from lang_core import ConfigError, GraphError, TensorSpec, json_value, load_plugins

_KIND: Final = re.compile(r"[a-z][a-z0-9_]*")
_ordered_sums: Final[dict[str, bool]] = {}  # by kind
# Attribute of a function's head: its kind and its attributes, in JSON.
_ATTRIBUTE: Final = "tapeline.helper"
_HEAD: Final = re.compile(
    r"  func\.func private @(?P<name>[\w.]+)\((?P<arguments>.*)\) -> \((?P<results>.*)\) "
    rf'attributes \{{{re.escape(_ATTRIBUTE)} = "(?P<record>.*)"\}} \{{\n'
)
_TYPE: Final = re.compile(r"tensor<\w+>")


def register_helper(kind: str, *, ordered_sums: bool = False) -> None:
    """Registers a kind of helper functions, so that rules can call them; other packages may register further ones.

    Args:
        kind: name of the kind, in lower-case letters, digits and ``_``.
        ordered_sums: whether kernels may add in another order for another number of rows. A caller that wants the same
            bits for any number then gets a separate function with ``batch_invariant`` in its attributes.

    Raises:
        ConfigError: the name is malformed, or taken.
    """
    if not _KIND.fullmatch(kind):
        raise ConfigError(
            f"helper function {kind!r}: the kind begins with a lower-case letter, and has these, digits and '_' alone"
        )
    if kind in _ordered_sums:
        raise ConfigError(f"helper function {kind!r} is registered already: a kind stands for one function")
    _ordered_sums[kind] = ordered_sums


def helper_kinds() -> tuple[str, ...]:
    """Returns the kinds of helper functions: this package's, then those that were registered."""
    return tuple(_ordered_sums)


for _kind in (
    "block_quantize",
    "cached_attention",
    "cached_attention_quantize",
    "packed_cached_attention",
    "packed_cached_attention_quantize",
    "quantize",
    "rms_norm_quantize",
    "silu_quantize",
):
    register_helper(_kind)
for _kind in ("linear", "expert_block_product", "packed_linear"):
    register_helper(_kind, ordered_sums=True)


@dataclass(frozen=True, slots=True)
class Helper:
    """Helper function that a rule wants to call.

    Attributes:
        kind: op or group of ops that it computes, one of ``helper_kinds()``.
        case: all else that its body depends on, in characters that names have.
        attributes: constants that its tensors' specs do not have, by name.
    """

    kind: str
    case: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Symbol of the function."""
        return f"{self.kind}.{self.case}"


def is_helper(function: str) -> bool:
    """Returns whether a function of a module is a helper function, not a block of the model."""
    kind, dot, _ = function.partition(".")
    if kind not in _ordered_sums:
        load_plugins()
    return bool(dot) and kind in _ordered_sums


def helper_record(
    helper: Helper, given: Iterable[TensorSpec], results: Iterable[TensorSpec], source: str = ""
) -> KernelSignature:
    """Returns the record of a helper function before its first call is counted: it reads its arguments only.

    Args:
        helper: helper function.
        given: specs of its arguments.
        results: specs of its results.
        source: name of the block, or path of the module, of the first call.
    """
    return KernelSignature(
        helper.name,
        tuple(KernelArgument(spec, "IN", "IN") for spec in given),
        tuple(KernelResult(spec) for spec in results),
        call_sites=0,
        kind=helper.kind,
        attributes=helper.attributes,
        source=source,
    )


def helper_head(function: KernelSignature, described: bool = True) -> str:
    """Returns the first line of a helper function, with its record if described; arguments are %a0, %a1, ..."""
    arguments = ", ".join([f"%a{i}: {tensor_type(given.spec)}" for i, given in enumerate(function.arguments)])
    results = ", ".join([tensor_type(result.spec) for result in function.results])
    record = json.dumps({"kind": function.kind, **function.attributes}, separators=(",", ":"))
    attributes = f"attributes {{{_ATTRIBUTE} = {quoted(record)}}} " if described else ""
    return f"  func.func private {symbol(function.name)}({arguments}) -> ({results}) {attributes}{{\n"


def read_helper(line: str) -> KernelSignature | None:
    """Returns the record of the helper function that a line of a module's text begins; None if it begins none."""
    head = _HEAD.fullmatch(line)
    if head is None:
        return None
    attributes = json_value(unquoted(head["record"]), nonfinite=True)
    helper = Helper(attributes.pop("kind"), head["name"], attributes)
    given, results = (map(spec_of, _TYPE.findall(head[part])) for part in ("arguments", "results"))
    return replace(helper_record(helper, given, results), name=head["name"])


class HelperFunctions:
    """Helper functions of a module.

    Attributes:
        functions: their records, by name.
        batch_invariant: whether callers ask for kernels with the same sums for any number of rows.
    """

    def __init__(self) -> None:
        self.batch_invariant = False
        self._bodies: Final[dict[str, str]] = {}
        self.functions: Final[dict[str, KernelSignature]] = {}

    def of_caller(self, helper: Helper) -> Helper:
        """Returns the helper function that a caller gets: of several orders of sums, the one that it asks for."""
        if not self.batch_invariant or not _ordered_sums.get(helper.kind):
            return helper
        attributes = {**helper.attributes, "batch_invariant": True}
        return Helper(helper.kind, f"{helper.case}.invariant", attributes)

    def add(self, function: KernelSignature, body: str) -> None:
        """Adds a function, with the lines of its body.

        Raises:
            GraphError: its kind is not registered.
        """
        if function.kind not in _ordered_sums:
            raise GraphError(
                f"helper function {function.name!r}: kind {function.kind!r} not found; available: "
                f"{', '.join(_ordered_sums)}: register it with register_helper"
            )
        self._bodies[function.name] = body
        self.functions[function.name] = function

    def end(self, write: Write, described: bool) -> None:
        """Writes the functions, with their records if ``described``."""
        for name, body in self._bodies.items():
            write(f"{helper_head(self.functions[name], described)}{body}  }}\n")
