"""Docstrings as Markdown: examples and literal blocks are fenced, members of enums listed. Named in mkdocs.yml."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from griffe import Class, Extension, Object

# A docstring's links to files are for readers of the source.
_FILE_LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:)[^)\s]+\)")
_INDENT = re.compile(r" *")


class DocstringForms(Extension):
    """Changes the docstring of every object before it is parsed."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrites a docstring in place."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
            if isinstance(obj, Class) and any("Enum" in str(base) for base in obj.bases):
                obj.docstring.value += _members(obj)


def _members(kind: Class) -> str:
    """Returns a list of an enum's members; those with a docstring have their own place on the page."""
    values = [(name, member) for name, member in kind.attributes.items() if member.value is not None]
    lines = [f"- `{name}` = `{member.value}`" for name, member in values if member.docstring is None]
    return "\n\nMembers:\n\n" + "\n".join(lines) if lines else ""


def as_markdown(text: str) -> str:
    """Returns a docstring with its interpreter sessions fenced, and blocks behind ``::`` too."""
    text = without_file_links(text)
    return "\n".join(_sessions(re.sub(r"::\n\n((?:    .*\n?|\n)+)", _literal, text)))


def without_file_links(text: str) -> str:
    """Returns a text with the labels of links to files in place of the links."""
    return _FILE_LINK.sub(r"\1", text)


def _literal(match: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in match[1].rstrip("\n").split("\n")]
    return "\n".join([":", "", "```python", *lines, "```", "", ""])


def _sessions(text: str) -> Iterator[str]:
    """Gives the lines; paragraphs that begin with a prompt are fenced."""
    for empty, group in groupby(text.split("\n"), key=lambda line: not line.strip()):
        lines = list(group)
        if empty or not lines[0].lstrip().startswith(">>>"):
            yield from lines
        else:
            indent = str(_INDENT.match(lines[0])[0])  # type: ignore[index]
            yield from (f"{indent}```pycon", *lines, f"{indent}```")
