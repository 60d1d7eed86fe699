"""Public functions say of which shapes their arrays are, and in which units their measures."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.docs._docstrings import Documented, Public, functions_of, public_names
from tests.layering._sources import workspace_root
from tools.docs.site import rooms

_ROOT: Final = workspace_root()
_PUBLIC: Final = list(public_names(_ROOT, {room.name: room for room in rooms(_ROOT)}))
_FUNCTIONS: Final = [function for public in _PUBLIC for function in functions_of(public)]
_ARRAY: Final = re.compile(r"\b(?:ndarray|Tensor|jax\.Array|ArrayLike)\b")
# Axes in brackets, a rank, words about a shape or a spec (which is shape and dtype), or the function that says it.
_SHAPE: Final = re.compile(r"\[(?:[\w.*+/()' -]+(?:, ?)?)*\]|\branks?\b|\bshapes?\b|\bspecs?\b|\b[Ss]ee ``")
# Measures whose names leave the unit open; others end in it, such as ``drain_seconds`` and ``total_bytes``.
_MEASURE: Final = re.compile(
    r"(?:^|_)(?:timeout|deadline|duration|interval|stall|retry_after|latency|bandwidth|frequency|max_memory)$"
)
_UNIT: Final = re.compile(r"\b(?:milli|micro)?seconds?\b|\bbytes?\b|\b[MG]iB\b|\bHz\b|\bper second\b")
_ENTRY: Final = r"^    {}(?: \([^)]*\))?: (.*(?:\n        .*)*)"


def _with_arrays(function: Documented) -> bool:
    """Returns whether an argument or the result is of arrays; a string names a class that is defined below."""
    arguments = function.node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    annotations = [*(argument.annotation for argument in listed), function.node.returns]
    return any(node is not None and _ARRAY.search(ast.unparse(node)) for node in annotations)


def test_the_rule_knows_arrays_and_shapes() -> None:
    named = {function.name for function in _FUNCTIONS if _with_arrays(function)}
    assert {"transformer_core.rope", "lang_core.WeightSource.read", "run_jax.training.Trainer.collect"} & named
    assert len(named) > 250
    assert all(map(_SHAPE.search, ("x [B, T, D]", "i32 [1, T']", "[stop - start, ..]", "rank 0", "any shape")))
    assert not any(map(_SHAPE.search, ("Returns the whole tensor.", "a list of arrays, by name")))


def test_arrays_have_shapes() -> None:
    assert not [f.name for f in _FUNCTIONS if _with_arrays(f) and not _SHAPE.search(f.docstring)]


def _measures(public: Public) -> Iterator[tuple[str, str]]:
    """Gives measures of a class's attributes, and of arguments, with their entries in the docstring."""
    texts = [public.docstring, *(function.docstring for function in functions_of(public))]
    for text in texts:
        for name in re.findall(r"^    (\w+)(?: \([^)]*\))?: ", text, re.MULTILINE):
            entry = re.search(_ENTRY.format(name), text, re.MULTILINE)
            if _MEASURE.search(name) and entry:
                yield f"{public.name}: {name}", entry[1]


def test_measures_have_units() -> None:
    measures = {name: text for public in _PUBLIC for name, text in _measures(public)}
    assert len(measures) > 5
    assert not {name: text for name, text in measures.items() if not _UNIT.search(text)}


def test_measures_of_functions_are_explained() -> None:
    unexplained = {
        f.name: [a for a in f.arguments if _MEASURE.search(a) and not _UNIT.search(f.docstring)] for f in _FUNCTIONS
    }
    assert not {name: arguments for name, arguments in unexplained.items() if arguments}
