"""Snippets of docs/: Python is run, or has the test that runs its calls; commands have the flags that they name."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from absl import flags

from tapeline.command import COMMANDS, load_command
from tests.docs._snippets import PAGES, Snippets, blocks_of
from tests.layering._sources import workspace_root

_TREE: Final = workspace_root()
# Pages whose Python other tests of this folder run.
_RUN_ELSEWHERE: Final = ("README.md", "docs/bundle.md", "docs/flow.md", "docs/packages.md")
# Pages whose Python needs models or servers: models_doc_test runs it.
_WITH_MODELS: Final = (
    "docs/encoders.md",
    "docs/grammars.md",
    "docs/serving-api.md",
    "docs/serving.md",
    "docs/transcription.md",
)
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


# Calls of what the Python of a page defines and does not call.
_CALLS: Final = {
    "docs/extending.md": """
import json
from pathlib import Path
import numpy as np
from compile_dag import record
from lang_core import EagerExecutionContext, MappingWeights, TensorSpec
from transformer_core.family import ConfigFields

sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "relu2",
         "max_position_embeddings": 16, "attention_bias": True, "mine_logits_factor": 0.5}
config = read(ConfigFields(sizes, "config.json"))
assert (config.qkv_bias, config.gated_mlp, config.logits_scale) == (True, False, 0.5)

x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 3, 8)
layer = MineLayer(config, 0, "f32")
rng = np.random.default_rng(0)
weights = {path: rng.standard_normal(parameter.spec.shape, np.float32) for path, parameter in layer.named_parameters()}
ctx = EagerExecutionContext(MappingWeights(weights))
whole = SwiGLU.forward(layer.mlp, ctx, ctx.constant(x))
assert layer.mlp(ctx, x).numpy().tobytes() == (whole.numpy() * np.float32(0.5)).tobytes()
assert record(layer.mlp, TensorSpec(x.shape, "f32")).nodes[-1].op.name == "mul"

assert Rolled()(ctx, x).numpy().tolist() == np.roll(x, 4, -1).tolist()
assert [node.op.name for node in record(Rolled(), TensorSpec(x.shape, "f32")).nodes] == ["slice", "slice", "concat"]

Path("words.txt").write_text("unknown a word")
assert read_words(Path("words.txt")).encode("word").ids == [2]
""",
    "docs/sharding.md": """
shards = list(_my_mixer(MyMixer(8, 2)))
assert len(shards) >= 2
""",
}


_WITH_PYTHON: Final = [page for page in PAGES if any(language == "python" for language, _ in blocks_of(page))]
_RUN_HERE: Final = [page for page in _WITH_PYTHON if page not in {*_RUN_ELSEWHERE, *_WITH_MODELS}]


def test_the_tables_name_pages_with_python() -> None:
    assert {*_RUN_ELSEWHERE, *_WITH_MODELS, *_PRELUDES, *_CALLS} <= set(_WITH_PYTHON)
    languages = {language for page in PAGES for language, _ in blocks_of(page)}
    assert not languages & {"py", "python3", "pycon", "bash", "shell", "console"}  # say python, or sh


@pytest.mark.parametrize("page", _RUN_HERE)
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the Python of a page in order; every function, method and lambda in it is called."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # nothing is tuned yet
    snippets, blocks = Snippets(page), [*blocks_of(page), ("", "")]
    with contextlib.chdir(tmp_path):
        snippets.run_beside(_PRELUDES.get(page, ""))
        for number, (language, code) in enumerate(blocks):
            if language == "python" and "import openai" not in code:
                output = snippets.run(code, f"block {number}")
                assert output in ("", blocks[number + 1][1]), code
        snippets.run_beside(_CALLS.get(page, ""))
    assert snippets.uncalled() == []


def test_a_function_that_is_not_called_is_found() -> None:
    snippets = Snippets("docs/packages.md")
    code = (
        'def f(x):\n    """Text."""\n    return x\n'
        "class C:\n    def m(self):\n        return lambda: 1\n"
        "g = lambda x: x\n"
        "print(f(2), f.__doc__)"
    )
    assert snippets.run(code, "block 0") == "2 Text.\n"
    lambdas = ["lambda of line 6 of block 0", "lambda of line 7 of block 0"]
    assert sorted(snippets.uncalled()) == ["C.m of block 0", *lambdas]
    snippets.run_beside("C().m()(), g(1)")
    assert snippets.uncalled() == []


def _commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Gives the commands of a page's shell blocks with their arguments."""
    for words in _lines(page):
        yield from _command(words)


def _lines(page: str) -> Iterator[list[str]]:
    """Gives the words of each command of a page's shell blocks."""
    for language, text in blocks_of(page):
        for line in text.replace("\\\n", " ").splitlines() if language == "sh" else []:
            yield from (words for words in _split(shlex.split(line, comments=True)) if words)


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


@pytest.mark.parametrize("page", [page for page in PAGES if list(_commands(page))])
def test_commands_take_their_flags(page: str) -> None:
    calls = [(name, argument) for name, arguments in _commands(page) for argument in arguments]
    refusals = [_refusal(name, argument) for name, argument in calls if argument not in ("--", "--help")]
    assert not [refusal for refusal in refusals if refusal]


# Programs of others that the pages call.
_PROGRAMS: Final = frozenset(
    (
        "cat cd cmake cp curl espeak-ng export git head iree-compile jq mkdir mpirun mv pip python python3 rm srun "
        "sudo tar unzip"
    ).split()
)
_KEYWORDS: Final = frozenset({"for", "done", "if", "fi", "then", "else"})


def _unknown(words: list[str]) -> str:
    """Returns what a command calls that does not exist; empty where it exists."""
    while words and re.fullmatch(r"\w+=.*", words[0]):  # a variable of the environment
        words = words[1:]
    if not words:
        return ""
    program, *rest = words
    if program.endswith("tapeline"):
        name = next(iter(rest), "--help")
        return "" if name in {*COMMANDS, "--help", "--version"} else f"tapeline {name}"
    if program in ("srun", "mpirun"):
        place = next((place for place, word in enumerate(rest) if word.endswith("tapeline")), len(rest))
        return _unknown(rest[place:])
    if Path(program).name in ("bazel", "bazelw"):
        targets = [word for word in rest if word.startswith(("//", "@"))]
        return next((target for target in targets if not _exists(target)), "")
    if program in ("bash", "sh", "source", ".") and rest:
        return "" if (_TREE / rest[0]).is_file() or rest[0] == "-c" else f"{program} {rest[0]}"
    return "" if program in _KEYWORDS or Path(program).name in _PROGRAMS else program


def _exists(target: str) -> bool:
    """Returns whether a Bazel target or pattern names a folder, and there a target or a program of tools."""
    folder, _, name = target.removeprefix("//").partition(":")
    if folder.endswith("..."):
        return (_TREE / folder.removesuffix("...")).is_dir()
    build = _TREE / folder / "BUILD.bazel"
    if not build.is_file():
        return False
    text = build.read_text(encoding="utf-8")
    names = {name, name.replace("-", "_"), name.replace("_", "-")}
    return name in ("", "tests", Path(folder).name) or any(
        f'"{one}"' in text or (build.parent / f"{one}.py").is_file() for one in names
    )


@pytest.mark.parametrize("page", [page for page in PAGES if list(_lines(page))])
def test_commands_exist(page: str) -> None:
    assert not [unknown for words in _lines(page) if (unknown := _unknown(words))]


def test_a_command_that_does_not_exist_is_found() -> None:
    assert _unknown(["tapeline", "chatt"]) == "tapeline chatt"
    assert _unknown(["TAPELINE_LONG=1", "env/bin/tapeline", "chat"]) == ""
    assert _unknown(["./bazelw", "run", "//tools:exprt"]) == "//tools:exprt"
    assert _unknown(["./bazelw", "run", "//tools:export"]) == ""
    assert _unknown(["./bazelw", "test", "//nowhere/..."]) == "//nowhere/..."
    assert _unknown(["frobnicate", "--now"]) == "frobnicate"
    assert _unknown(["srun", "tapeline", "lunch"]) == "tapeline lunch"


_DEFINED: Final = re.compile(r"DEFINE_\w+\(\s*\"(\w+)\"")


@pytest.mark.parametrize("page", [page for page in PAGES if list(_lines(page))])
def test_programs_of_tools_have_their_flags(page: str) -> None:
    """Checks programs that are no command of tapeline: ``//tools:bench``, ``//tools/docs:...``."""
    text = "".join(path.read_text(encoding="utf-8") for path in (_TREE / "tools").rglob("*.py"))
    known = {*_DEFINED.findall(text)}
    for words in _lines(page):
        target = next((word for word in words if word.startswith("//tools")), "")
        if target and "run" in words and target.partition(":")[2].replace("_", "-") not in COMMANDS:
            flags_of_tool = [word[2:].partition("=")[0].removeprefix("no") for word in words if word.startswith("--")]
            assert not [flag for flag in flags_of_tool if flag and flag not in known], words


@pytest.mark.parametrize("page", ["tapeline/README.md", "docs/commands.md"])
def test_tables_of_commands_are_whole(page: str) -> None:
    text = (_TREE / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z-]+)`", "\n".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))))
    without_json = {"serve", "launch", "completion"} if page == "docs/commands.md" else set()
    assert named == set(COMMANDS) - without_json


def test_flags_are_absl_s() -> None:
    assert isinstance(load_command("export").FLAGS, flags.FlagValues)
    assert _refusal("export", "--wrong=1") == "export has no flag --wrong=1"
    assert "expected one of" in _refusal("export", "--dtype=f8")
