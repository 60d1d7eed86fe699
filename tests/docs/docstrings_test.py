"""Every public name is documented, and docstrings say what the code does, as far as a machine can tell."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.docs._docstrings import Documented, functions_of, public_names
from tests.layering._sources import workspace_root
from tools.docs.site import rooms

_ROOT: Final = workspace_root()
_PUBLIC: Final = list(public_names(_ROOT, {room.name: room for room in rooms(_ROOT)}))
_FUNCTIONS: Final = [function for public in _PUBLIC for function in functions_of(public)]
_ERRORS: Final = {public.node.name for public in _PUBLIC if isinstance(public.node, ast.ClassDef)} | {"TapelineError"}
_MOST_UNLISTED: Final = 3


def test_there_are_public_names() -> None:
    names = {public.name for public in _PUBLIC}
    assert {"tapeline.running.load", "lang_core.Module", "tapeline.compare.TOLERANCE"} <= names
    assert len(names) > 1000


def test_every_public_name_has_a_docstring() -> None:
    assert not [public.name for public in _PUBLIC if not public.docstring]


def test_every_public_method_has_a_docstring() -> None:
    assert not [function.name for function in _FUNCTIONS if not function.docstring.strip()]


def _wrong_lists(function: Documented) -> Iterator[str]:
    """Gives arguments that only the docstring has, where no ``**kwargs`` takes them, or only the signature."""
    if function.listed:
        yield from () if "kwargs" in function.arguments else set(function.listed) - set(function.arguments)
        yield from set(function.arguments) - set(function.listed)


def test_lists_of_arguments_are_those_of_the_signature() -> None:
    lists = {function.name: list(_wrong_lists(function)) for function in _FUNCTIONS}
    assert not {name: arguments for name, arguments in lists.items() if arguments}


def _unexplained(function: Documented) -> list[str]:
    return [name for name in function.arguments if not re.search(rf"\b{name}\b", function.docstring)]


def test_functions_of_many_arguments_explain_each() -> None:
    """Fewer may speak for themselves; methods may be those of a protocol, which explains them."""
    functions = {public.name for public in _PUBLIC if isinstance(public.node, ast.FunctionDef)}
    many = [f for f in _FUNCTIONS if f.name in functions and len(f.arguments) > _MOST_UNLISTED]
    assert not {f.name: _unexplained(f) for f in many if _unexplained(f)}


def test_errors_that_are_raised_are_named() -> None:
    silent = {f.name: {error for error in f.raised() & _ERRORS if error not in f.docstring} for f in _FUNCTIONS}
    assert not {name: errors for name, errors in silent.items() if errors}


def test_the_rule_of_errors_follows_private_helpers() -> None:
    raised = {f.name: f.raised() & _ERRORS for f in _FUNCTIONS}
    assert {"ConfigError"} <= raised["transformer_core.ConfigFields.number"]  # by a method of the class
    assert {"CheckpointError"} <= raised["transformer_core.models.stored_encodings"]  # by a function of the file
    assert sum(map(len, raised.values())) > 300
