"""Snippets of docs/: Python is run, or has the test that runs its calls; commands have the flags that they name."""

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from absl import flags

from tapeline.command import COMMANDS, load_command

_ROOT: Final = Path(__file__).resolve().parents[2]
_PAGES: Final = {
    path.relative_to(_ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
}
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Pages whose Python other tests of this folder run.
_RUN_ELSEWHERE: Final = ("README.md", "docs/bundle.md", "docs/flow.md", "docs/packages.md")
# Pages whose Python needs models or servers: the test that makes the same calls of them.
_CALLED_BY: Final = {
    "docs/encoders.md": "tests/product/rerank_test.py tests/product/pictures_test.py "
    "tapeline/images/_preprocessor_test.py",
    "docs/serving-api.md": "tests/product/serve_pictures_test.py",
    "docs/grammars.md": "tests/product/serve_test.py",
    "docs/serving.md": "tests/product/serve_test.py",
    "docs/start.md": "tests/product/serve_test.py tests/wheels/install_test.py",
    "docs/transcription.md": "tests/product/transcription_test.py tapeline/transcribing/_transcription_test.py",
}
# Definitions that the Python of a page needs around it.
_PRELUDES: Final = {
    "docs/dump.md": """
import numpy as np
from pathlib import Path
from lang_core import Argument, EntryPoint, MappingWeights, TensorSpec

directory, inputs, weights = Path("dump"), {"x": np.ones(3, np.float32)}, MappingWeights({})
def doubled(ctx, x):
    with ctx.block("layer"):
        return {"y": ctx.tag(ctx.ops.add(x, x), "layer.output")}
entry_points = [EntryPoint("forward", doubled, (Argument("x", TensorSpec((3,), "f32")),))]
""",
    "docs/kernels.md": """
from pathlib import Path
import jax
import jax.numpy as jnp
import numpy as np
from lang_core import Argument, EagerExecutionContext, EntryPoint, MappingWeights, Tensor, TensorSpec
from run_iree.archive import ArchiveEntry, write_archive

x, weight, batch = np.ones((3, 8), np.float32), np.ones((16, 8), np.float32), np.ones((2, 3, 8), np.float32)
ctx, token_ids, arrays = EagerExecutionContext(), np.ones((1, 4), np.float32), [np.ones(3, np.float32)]
def model(ctx, x):
    return ctx.ops.softmax(x, -1)
def doubled(ctx, x):
    return {"y": ctx.ops.add(x, x)}
entry_point = EntryPoint("forward", doubled, (Argument("x", TensorSpec((3,), "f32")),))
Path("bundle").mkdir()
stored = MappingWeights({"w": np.zeros(1, "f4")})
write_archive("bundle/weights.irpa", [ArchiveEntry("w", "w", TensorSpec((1,), "f32"))], stored)
""",
}


def _blocks(page: str) -> list[tuple[str, str]]:
    return _FENCE.findall(_PAGES[page])


_WITH_PYTHON: Final = [page for page in _PAGES if any(language == "python" for language, _ in _blocks(page))]
_ALSO_HERE: Final = ["docs/start.md"]  # but for what asks a server
_RUN_HERE: Final = [page for page in _WITH_PYTHON if page not in {*_RUN_ELSEWHERE, *_CALLED_BY}] + _ALSO_HERE


def test_the_tables_name_pages_with_python() -> None:
    assert {*_RUN_ELSEWHERE, *_CALLED_BY, *_PRELUDES} <= set(_WITH_PYTHON)


@pytest.mark.parametrize("page", _RUN_HERE)
def test_python_runs(page: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = [*_blocks(page), ("", "")]
    with contextlib.chdir(tmp_path):
        exec(compile(_PRELUDES.get(page, ""), f"{page}, before", "exec"), names)  # noqa: S102 - our own page
        for number, (language, code) in enumerate(blocks):
            if language == "python" and not (page in _CALLED_BY and "import openai" in code):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(code, f"{page}, block {number}", "exec"), names)  # noqa: S102 - our own page
                assert out.getvalue() in ("", blocks[number + 1][1]), code


@pytest.mark.parametrize("page", _CALLED_BY)
def test_calls_are_those_of_a_test(page: str) -> None:
    tests = "".join((_ROOT / path).read_text(encoding="utf-8") for path in _CALLED_BY[page].split())
    code = "\n".join(text for language, text in _blocks(page) if language == "python")
    methods = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    called = {method for method in methods if re.search(rf"\.{method}\(", code)} - {"read"}  # of an open file
    assert called
    assert not [method for method in called if f".{method}(" not in tests]


def _commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Gives the commands of a page's shell blocks with their arguments."""
    for language, text in _blocks(page):
        for line in text.replace("\\\n", " ").splitlines() if language == "sh" else []:
            for words in _split(shlex.split(line, comments=True)):
                yield from _command(words)


def _split(words: list[str]) -> list[list[str]]:
    """Returns the commands of a line."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "|", ";"):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _command(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    for number, word in enumerate(words):
        name = word.removeprefix("//tools:").replace("_", "-") if word.startswith("//tools:") else ""
        if word.endswith("tapeline") and words[number + 1 : number + 2]:
            name = words[number + 1]
        if name in COMMANDS:
            rest = words[number + 2 :]
            inner = next(
                (place for place, other in enumerate(rest) if name == "launch" and other in COMMANDS), len(rest)
            )
            yield name, _flags_of(rest[:inner])
            if inner < len(rest):
                yield rest[inner], _flags_of(rest[inner:])


def _flags_of(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("--")]


def _refusal(name: str, argument: str) -> str:
    flag, _, value = argument[2:].partition("=")
    known = load_command(name).FLAGS
    if flag.removeprefix("no") not in known and flag not in known:
        return f"{name} has no flag {argument}"
    choices = getattr(known[flag].parser, "enum_values", None) if flag in known else None
    return f"{name}: {argument}: expected one of {choices}" if choices and value and value not in choices else ""


@pytest.mark.parametrize("page", [page for page in _PAGES if list(_commands(page))])
def test_commands_take_their_flags(page: str) -> None:
    calls = [(name, argument) for name, arguments in _commands(page) for argument in arguments]
    refusals = [_refusal(name, argument) for name, argument in calls if argument not in ("--", "--help")]
    assert not [refusal for refusal in refusals if refusal]


@pytest.mark.parametrize("page", ["tapeline/README.md", "docs/commands.md"])
def test_tables_of_commands_are_whole(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))))
    without_json = {"serve", "launch", "completion"} if page == "docs/commands.md" else set()
    assert named == set(COMMANDS) - without_json


def test_flags_are_absl_s() -> None:
    assert isinstance(load_command("export").FLAGS, flags.FlagValues)
    assert _refusal("export", "--wrong=1") == "export has no flag --wrong=1"
    assert "expected one of" in _refusal("export", "--dtype=f8")
