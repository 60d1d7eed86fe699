"""Writes the reference of the op table from the table itself: ``bazel run //tools/docs:ops_doc``.

docs/ops.md is for people, docs/ops.json for programs.
"""

import inspect
import os
import re
from pathlib import Path
from typing import Final

from lang_core import OPS, Op, Ops, ops
from tools.docs._ops_json import render_json

_SECTIONS: Final = {
    "_elementwise": "Elementwise",
    "_shape": "Shapes and creation",
    "_indexing": "Indexing",
    "_reduce": "Reductions, running sums and order",
    "_contract": "Contractions",
    "_packed": "Block-quantised weights",
    "_packed_experts": "Block-quantised weights of stacked experts",
    "_cached_attention": "Attention over a cache",
    "_packed_cache": "Quantized caches",
    "_control": "Control flow",
}
# Ops whose method goes by another name, since the op's is a keyword.
_METHODS: Final = {"while": "while_loop"}

_HEADER: Final = """\
# Ops

This page is generated: change the docstrings in `lang_core/ops` and run `bazel run //tools/docs:ops_doc`. The same as
data, with operands, dtypes of results and the rules that exist, is [ops.json](ops.json) ([schema](ops.schema.json)).

"""


def render() -> str:
    """The page."""
    parts = [_HEADER, _prose(inspect.getdoc(ops) or ""), "\n"]
    for module, title in _SECTIONS.items():
        parts.append(f"\n## {title}\n")
        parts += [_op(op) for op in OPS.values() if op.shape_rule.__module__.endswith(module)]
    parts.append("\n## Composites\n\nMethods of `ctx.ops` that are written in terms of the ops above.\n")
    parts += [_composite(name) for name in _composites()]
    return "".join(parts)


def _composites() -> list[str]:
    known = {_METHODS.get(name, name) for name in OPS}
    return sorted(name for name in dir(Ops) if not name.startswith("_") and name not in known)


def _op(op: Op) -> str:
    attributes = ", ".join(f"`{name}`" for name in op.attributes)
    lines = [f"\n### {op.name}\n\n{_prose(op.summary)}\n"]
    if attributes:
        lines.append(f"\nAttributes: {attributes}.\n")
    if op.constraints:
        lines.append("\n")
    lines += [f"- C{number}: {text}.\n" for number, text in enumerate(op.constraints, 1)]
    return "".join(lines)


def _composite(name: str) -> str:
    method = getattr(Ops, name)
    names = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
    text, _, details = (inspect.getdoc(method) or "").partition("\nArgs:\n")
    shown = f"\n```text\nArgs:\n{details.rstrip()}\n```\n" if details else ""
    return f"\n### {name}({', '.join(names)})\n\n{_prose(text.rstrip())}\n{shown}"


def _prose(text: str) -> str:
    """Markdown of a docstring: one kind of backticks, one kind of headings, escaped stars."""
    text = re.sub(r"^(.+)\n-+$", r"## \1", text, flags=re.MULTILINE).replace("``", "`")
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([*\[<])", r"\\\1", piece) for piece in pieces)


def main() -> None:
    """Writes page and table into the workspace that Bazel was started in, else into the current folder."""
    folder = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")) / "docs"
    (folder / "ops.md").write_text(render(), encoding="utf-8")
    (folder / "ops.json").write_text(render_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
