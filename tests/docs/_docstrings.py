"""Public names and their docstrings, read from the sources: is there one, and does it say what the code does?"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.docs.site import Room, owner_of

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
_ENTRY: Final = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?: ", re.MULTILINE)
_SECTION: Final = r"^{}:\n((?:    .*\n|\n)+)"


class Public(NamedTuple):
    """Public name and what stands behind it.

    Attributes:
        name: dotted, with the room.
        path: of the file, relative to the tree's root.
        node: definition; None where the file has none of the name.
        docstring: of the definition, or the string behind an assignment; empty without one.
        helpers: private functions of its file.
    """

    name: str
    path: str
    node: Definition | None
    docstring: str
    helpers: dict[str, ast.FunctionDef]


class Documented(NamedTuple):
    """Function or method of a public name.

    Attributes:
        name: dotted.
        node: definition.
        docstring: its own, and for a constructor that of the class.
        arguments: names, without self.
        helpers: private functions of its file, and private methods of its class as ``self._name``.
    """

    name: str
    node: ast.FunctionDef
    docstring: str
    arguments: list[str]
    helpers: dict[str, ast.FunctionDef]

    @property
    def listed(self) -> list[str]:
        """Names in the docstring's list of arguments."""
        section = re.search(_SECTION.format("Args"), self.docstring + "\n", re.MULTILINE)
        return _ENTRY.findall(section[1]) if section else []

    def raised(self) -> set[str]:
        """Returns names of classes that the function raises, itself or by helpers that it calls outside of ``try``."""
        return {name for node in self._own() for statement in node.body for name in _raised(statement)}

    def _own(self) -> list[ast.FunctionDef]:
        """Returns the function and the helpers that it calls, and these call."""
        nodes, left = {self.name: self.node}, [self.node]
        while left:
            called = {name for statement in left.pop().body for name in _called(statement)}
            new = {name: self.helpers[name] for name in called & self.helpers.keys() - nodes.keys()}
            nodes |= new
            left += new.values()
        return [*nodes.values()]


def public_names(root: Path, rooms: dict[str, Room]) -> Iterator[Public]:
    """Gives each public name once, from the room that documents it."""
    for room in rooms.values():
        for name, module in room.names.items():
            if owner_of(name, room, rooms) is room:
                public = _public(root, f"{room.name}.{name}", room.name, name)  # there, it may have been renamed
                yield public if public.node else _public(root, public.name, module, name)


def functions_of(public: Public) -> Iterator[Documented]:
    """Gives a public function, or the public methods and the constructor of a class."""
    if isinstance(public.node, ast.FunctionDef):
        yield _documented(public.name, public.node, public.docstring, public.helpers)
    elif isinstance(public.node, ast.ClassDef):
        helpers = public.helpers | _private(public.node.body, "self.")
        for node in public.node.body:
            if isinstance(node, ast.FunctionDef) and _is_public(node):
                own = ast.get_docstring(node) or ""
                text = f"{public.docstring}\n\n{own}" if node.name == "__init__" else own or _entry(public, node.name)
                yield _documented(f"{public.name}.{node.name}", node, text, helpers)


def _entry(public: Public, name: str) -> str:
    """Returns the line of a class's docstring about an attribute, which stands for a property's own docstring."""
    line = re.search(rf"^    {name}: .*", public.docstring, re.MULTILINE)
    return line[0] if line else ""


def _public(root: Path, public: str, module: str, name: str) -> Public:
    path = _file(root, module)
    whole = ast.parse((root / path).read_text(encoding="utf-8")).body
    body = [inner for node in whole for inner in (node.body if isinstance(node, ast.If) else [node])]
    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.ImportFrom) and (original := _imported(node, name)):
            return _public(root, public, node.module or "", original)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and not _is_overload(node):
            return Public(public, path, node, ast.get_docstring(node) or "", _private(body))
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            return Public(public, path, node, _string(following), {})
    return Public(public, path, None, "", {})


def _file(root: Path, module: str) -> str:
    folder = module.replace(".", "/")
    return f"{folder}/__init__.py" if (root / folder).is_dir() else f"{folder}.py"


def _imported(node: ast.ImportFrom, name: str) -> str | None:
    return next((alias.name for alias in node.names if (alias.asname or alias.name) == name), None)


def _is_public(node: ast.FunctionDef) -> bool:
    return (not node.name.startswith("_") or node.name == "__init__") and not _is_overload(node)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _string(node: ast.stmt) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Returns whether another definition of the name speaks for this one."""
    return any(ast.unparse(decorator).endswith(("overload", ".setter")) for decorator in node.decorator_list)


def _documented(name: str, node: ast.FunctionDef, docstring: str, helpers: dict[str, ast.FunctionDef]) -> Documented:
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    names = [a.arg for a in (*listed, *rest) if a.arg not in ("self", "cls")]
    return Documented(name, node, docstring, names, helpers)


def _called(node: ast.AST) -> Iterator[str]:
    """Gives the names of what is called, but in functions inside, and where errors are caught."""
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func)
    caught = node.body if isinstance(node, ast.Try) and node.handlers else []
    for child in ast.iter_child_nodes(node):
        if child not in caught:
            yield from _called(child)


def _private(nodes: Sequence[ast.stmt], prefix: str = "") -> dict[str, ast.FunctionDef]:
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return {prefix + node.name: node for node in functions if re.match(r"_(?!_)", node.name)}


def _raised(node: ast.AST) -> Iterator[str]:
    """Gives the classes of raise statements; those of functions inside are not the function's own."""
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        yield ast.unparse(raised)
    for child in ast.iter_child_nodes(node):
        yield from _raised(child)
