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
_SECTIONS: Final = re.compile(r"^(?:Args|Returns|Yields|Raises|Attributes):$", re.MULTILINE)
_RETURNS: Final = r"^(?:Returns|Yields):\n((?:    .*\n?|\n)+)"
_ENTRY: Final = r"^    {}(?: \([^)]*\))?: (.*(?:\n        .*)*)"


def _arrays(function: Documented) -> Iterator[str]:
    """Gives the arguments that are of arrays, and ``return``; a string names a class that is defined below."""
    arguments = function.node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    annotations = {argument.arg: argument.annotation for argument in (*listed, *rest)}
    for name, node in {**annotations, "return": function.node.returns}.items():
        if node is not None and _ARRAY.search(ast.unparse(node)):
            yield name


def _said_of(function: Documented, name: str) -> str:
    """Returns what a docstring says of an argument or the result: its entry, and the text before all entries."""
    text = _SECTIONS.split(function.docstring)[0]
    pattern = _RETURNS if name == "return" else _ENTRY.format(rf"\*{{0,2}}{name}")
    entry = re.search(pattern, function.docstring, re.MULTILINE)
    return f"{text}\n{entry[1] if entry else ''}"


def test_the_rule_knows_arrays_and_shapes() -> None:
    named = {function.name for function in _FUNCTIONS if [*_arrays(function)]}
    assert {"transformer_core.rope", "lang_core.WeightSource.read", "run_jax.training.Trainer.collect"} & named
    assert len(named) > 250
    assert all(map(_SHAPE.search, ("x [B, T, D]", "i32 [1, T']", "[stop - start, ..]", "rank 0", "any shape")))
    assert not any(map(_SHAPE.search, ("Returns the whole tensor.", "a list of arrays, by name")))


def test_each_array_has_a_shape() -> None:
    silent = {f.name: [name for name in _arrays(f) if not _SHAPE.search(_said_of(f, name))] for f in _FUNCTIONS}
    assert not {name: arrays for name, arrays in silent.items() if arrays}


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
