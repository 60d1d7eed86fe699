"""Pages name what is there: links lead to files, and commands to tools and flags."""

import re
from pathlib import Path
from typing import Final

import pytest

from tapeline.command import COMMANDS, load_command, shown_flags

_ROOT: Final = Path(__file__).resolve().parents[2]
_PAGES: Final = sorted(
    path.relative_to(_ROOT).as_posix()
    for folder in ("", "docs", "docs/design", "docs/lab")
    for path in (_ROOT / folder).glob("*.md")
)
_LINK: Final = re.compile(r"\]\(([^)#\s]+)")
_CALL: Final = re.compile(r"//tools:(\w+) -- ([^`\n]*)")
_INSTALLED: Final = re.compile(r"(?m)^(?:\S+/)?tapeline ([a-z-]+) ([^`\n#|&;]*)")
_FLAG: Final = re.compile(r"--(\w+)")
_DEFINED: Final = re.compile(r"flags\.DEFINE_\w+\(\s*\"(\w+)\"")
# A path in backquotes that begins with one of our folders, and what it may end with besides a name.
_PATH: Final = re.compile(
    r"`((?:autotune|build_defs|compile_dag|compile_hlo|docs|generation|lang_core|run_iree|run_jax|runtime|tapeline|tests|tools|transformer_core)/[^`\s:]*)"
)


def test_there_are_pages() -> None:
    assert {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/README.md", "docs/bundle.md"} <= set(_PAGES)


@pytest.mark.parametrize("page", _PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    gone = [
        target
        for target in _LINK.findall(text)
        if not target.startswith("https://") and not (_ROOT / page).parent.joinpath(target).exists()
    ]
    assert not gone


@pytest.mark.parametrize("page", _PAGES)
def test_paths_exist(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    gone = [path for path in _PATH.findall(text) if not any(_ROOT.glob(path.rstrip("/").replace("NNNN", "*")))]
    assert not gone


def _flags_of(tool: str) -> set[str]:
    """Returns the flags of a tool, by the subcommand that it starts or from its file."""
    if (command := tool.replace("_", "-")) in COMMANDS:
        return {"help", *load_command(command).FLAGS}
    return {"help", *_DEFINED.findall((_ROOT / "tools" / f"{tool}.py").read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", _PAGES)
def test_commands_name_tools_and_flags(page: str) -> None:
    targets = (_ROOT / "tools/BUILD.bazel").read_text("utf-8")
    text = (_ROOT / page).read_text(encoding="utf-8")
    for command, arguments in _INSTALLED.findall(text):
        assert command in COMMANDS, command
        own, _, inner = re.sub(r"(['\"]).*?\1", "", arguments).partition(" -- ")
        assert set(_FLAG.findall(own)) <= {*load_command(command).FLAGS, "help"}, (command, arguments)
        if inner:
            assert set(_FLAG.findall(inner)) <= set(load_command(inner.split()[0]).FLAGS), (command, arguments)
    for tool, arguments in _CALL.findall(text):
        assert f'name = "{tool}"' in targets, tool
        own, _, inner = arguments.partition(" -- ")  # launch: its flags, then the command that its ranks run
        assert set(_FLAG.findall(own)) <= _flags_of(tool), (tool, arguments)
        if inner:
            assert set(_FLAG.findall(inner)) <= _flags_of(inner.split()[0]), (tool, arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_on_a_page(command: str) -> None:
    text = "\n".join((_ROOT / page).read_text(encoding="utf-8") for page in _PAGES if page.count("/") < 2)
    module = load_command(command)
    flags = {flag.name for flag in shown_flags(module.FLAGS)}
    named = {name for name in flags if re.search(rf"--(?:\[no\]|no)?{name}\b", text)}
    operand = {getattr(module, "POSITIONAL", ("",))[0]}  # which is written without its name
    missing = sorted(flags - named - operand)
    assert not missing, "show these flags on the page of their task in docs"


def test_every_design_note_and_reference_is_in_the_index() -> None:
    indices = {folder: (_ROOT / folder / "README.md").read_text(encoding="utf-8") for folder in ("docs/", "docs/lab/")}
    for page in _PAGES:
        if page.startswith("docs/") and not page.endswith("/README.md"):
            folder = "docs/lab/" if page.startswith("docs/lab/") else "docs/"
            assert f"({page.removeprefix(folder)})" in indices[folder], page


_MEASURED: Final = re.compile(r"\d[\d.]* (?:MiB|GiB|s|x)\b")
_FIGURES: Final = {
    # figure of the first page: row of docs/benchmarks.md, which has it with more digits
    "6 MiB": "| export, weights external, streaming: anonymous memory over imports, MiB | <= 64 | 5.96 |",
    "4.7 GiB |": "| iree-turbine, parameters externalised | 26.8 | 4.7 GiB |",
    "| 4.7 GiB | has": "| Hugging Face's exporter, prefill and decode | 14.3 | 4.67 GiB |",
    "17.0 GiB": "| `jax.export`, weights captured as constants | 53 | 17.0 GiB |",
    "0.023 s": "| streaming | 0.023 [",
    "0.231 s": "| jax.export (peer) | 0.231 [",
    "1.42 x": "times llama.cpp, the geometric mean of 13 packed exports | >= 1.25 | 1.42 [",
}


@pytest.mark.parametrize("figure", _FIGURES)
def test_figures_of_the_first_page_are_measured(figure: str) -> None:
    first, benchmarks = ((_ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("README.md", "benchmarks.md"))
    assert figure in first
    assert _FIGURES[figure] in benchmarks
    table = first.partition('<div class="peers"')[2].partition("</div>")[0]
    known = {measured for key in _FIGURES for measured in _MEASURED.findall(key)} | {"1 x"}
    assert set(_MEASURED.findall(table)) <= known
