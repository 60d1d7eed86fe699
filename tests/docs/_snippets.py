"""Python of the pages of the documentation, run in order, with a note of each function that was called."""

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parents[2]
# A target that does not depend on the pages runs outside of the sandbox, and finds them behind its own link.
ROOT: Final = _HERE if (_HERE / "docs" / "packages.md").is_file() else Path(__file__).resolve().parents[2]
PAGES: Final = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
_FENCE: Final = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CALLED: Final = "note_that_it_was_called"


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Returns the fenced blocks of a page: language and text, without the indentation of the fence."""
    blocks = _FENCE.findall(PAGES[page])
    return [(language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)) for indent, language, text in blocks]


class Snippets:
    """Namespace in which the Python of a page runs.

    Args:
        page: path of the page.

    Attributes:
        names: the namespace.
    """

    def __init__(self, page: str) -> None:
        self._page = page
        self._defined: dict[str, None] = {}
        self._called: set[str] = set()
        self.names: dict[str, Any] = {"__name__": "page", _CALLED: self._called.add}

    def run(self, code: str, where: str) -> str:
        """Runs code of the page and returns what it prints."""
        label = f"{self._page}, {where}"
        tree = _Noting(where).visit(ast.parse(code, label))
        out = io.StringIO()
        self._defined.update(dict.fromkeys(_names_noted(tree)))
        with contextlib.redirect_stdout(out):
            exec(compile(ast.fix_missing_locations(tree), label, "exec"), self.names)  # noqa: S102 - our own page
        return out.getvalue()

    def run_beside(self, code: str) -> None:
        """Runs code that is not on the page: what the page's code needs, or calls of what it defines."""
        exec(compile(code, f"{self._page}, beside", "exec"), self.names)  # noqa: S102 - of our own tests

    def uncalled(self) -> list[str]:
        """Returns the functions, methods and lambdas that the page defines and nothing has called."""
        return [name for name in self._defined if name not in self._called]


class _Noting(ast.NodeTransformer):
    """Makes every function note that it was called, before its first statement."""

    def __init__(self, where: str) -> None:
        self._where, self._around = where, ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        name = f"{self._around}{node.name}"
        self._inside(node)
        has_docstring = ast.get_docstring(node, clean=False) is not None
        node.body.insert(1 if has_docstring else 0, ast.Expr(self._note(f"{name} of {self._where}", node)))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        note = self._note(f"lambda of line {node.lineno} of {self._where}", node)
        self.generic_visit(node)
        pair = ast.Tuple([note, node.body], ast.Load())
        node.body = ast.copy_location(ast.Subscript(pair, ast.Constant(1), ast.Load()), node)
        return node

    def _inside(self, node: Any) -> ast.AST:
        before, self._around = self._around, f"{self._around}{node.name}."
        self.generic_visit(node)
        self._around = before
        return node

    def _note(self, name: str, node: ast.AST) -> ast.Call:
        call = ast.Call(ast.Name(_CALLED, ast.Load()), [ast.Constant(name)], [])
        return ast.copy_location(call, node)


def _names_noted(tree: ast.AST) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        argument.value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == _CALLED
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
