"""Tapeline as `pip install tapeline` leaves it: without JAX, optax, orbax, soundfile, Pillow and Matplotlib.

The interpreters of these tests find none of these packages, nor run_jax. tests/wheels installs the wheels so.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import lang_core
from tapeline.bundle import ARTIFACT, REPORT, Bundle
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.product._bundles import export
from tests.product._modules import shared_modules
from tests.product._serving import ServerProcess, serving

# Python imports this module when it starts.
_SITE: Final = """
import sys
from importlib.machinery import PathFinder

_ABSENT = {absent!r}


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in _ABSENT else PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
# Runs commands in one process, because each start costs a second.
_COMMANDS: Final = """
import contextlib, io, json, sys
from tapeline.command import main

finished = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    finished.append((code, out.getvalue(), err.getvalue()))
json.dump(finished, sys.__stdout__)
"""
_CALLS: Final = """
import tapeline
from pathlib import Path
from autotune.compilers import compiler_named
from compile_hlo.portable import interpret, verify_text
from tapeline.media.audio import read_audio
from tapeline.media.images import read_image

assert not [name for name in tapeline.__all__ if getattr(tapeline, name) is None]
for call in (
    lambda: read_audio(b"", 16000),
    lambda: read_image(b""),
    lambda: tapeline.load("demo", engine="jax"),
    lambda: tapeline.train("demo", "text.txt", "trained"),
    lambda: verify_text(Path("demo/module.mlir")),
    lambda: compiler_named("jax"),
):
    try:
        call()
    except tapeline.InputError as error:
        print(type(error).__name__, error)
"""
_PROMPT: Final = "It was the best of times,"
_SIZES: Final = ("--sequence=8", "--max_sequence=64", "--num_layers=1")
_SETTINGS: Final = {"image_processor_type": "ViTImageProcessor", "size": {"height": 14, "width": 14}}
# Commands, the extra that each needs, and the beginning of its error.
_REFUSED: Final[Sequence[tuple[list[str], str, str]]] = (
    (["generate", "--bundle=demo", "--backend=jax", "--prompt=x"], "jax", "--backend=jax"),
    (["export", "--verify=jax", "--output=x"], "jax", "--verify=jax"),
    (["export", "--verify=interpreter", "--output=x"], "jax", "--verify=interpreter"),
    (["export", "--mesh=tp=2", "--output=x"], "jax", "--mesh=tp=2"),
    (["export", "--stablehlo_target_version=1.1.0", "--output=x"], "jax", "--stablehlo_target_version=1.1.0"),
    (
        ["launch", "--processes=2", "--", "generate", "--bundle=demo", "--backend=jax", "--mesh=tp=2", "--prompt=x"],
        "jax",
        "launch",
    ),
    (["train", "--model=demo", "--data=text.txt", "--output=x"], "train", "training"),
    (["embed", "--bundle=seeing", "--image=text.txt", "--trust_compiled"], "images", "reading an image"),
    (["tune", "explain", "--picture=x.png"], "plots", "drawing a picture"),
)


class Place(NamedTuple):
    """Directory with bundles, and an environment without extras.

    Attributes:
        folder: the directory.
        environ: variables of the environment.
    """

    folder: Path
    environ: dict[str, str]

    def python(self, program: str, text: str = "") -> str:
        """Returns what a program prints."""
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, input=text, env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commands(self, *commands: Sequence[str]) -> list[tuple[int, str, str]]:
        """Returns exit code, stdout and stderr of each command."""
        return [tuple(finished) for finished in json.loads(self.python(_COMMANDS, json.dumps(commands)))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("plain")
    absent = {package for packages in lang_core.EXTRAS.values() for package in packages}
    (folder / "sitecustomize.py").write_text(_SITE.format(absent=absent))
    (folder / "text.txt").write_text("to be or not to be")
    (folder / "seeing-model").mkdir()
    write_encoder_checkpoint(folder / "seeing-model", ENCODER_CASES["siglip_vision"])
    (folder / "seeing-model" / "preprocessor_config.json").write_text(json.dumps(_SETTINGS))
    export(folder / "seeing-model", folder / "seeing")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        paths = os.pathsep.join(sys.path)
        yield Place(
            folder,
            {
                **os.environ,
                "PYTHONPATH": paths,
                "XDG_CACHE_HOME": str(folder / "cache"),
                **shared_modules(folder / "cache"),
            },
        )


@pytest.fixture(scope="module")
def exported(place: Place) -> list[tuple[int, str, str]]:
    """Exports the demo model as ``demo``, and for a server as ``served``; generates and inspects."""
    return place.commands(
        ["export", *_SIZES, "--output=demo"],
        ["generate", "--bundle=demo", f"--prompt={_PROMPT}", "--max_new_tokens=4"],
        ["inspect", "--bundle=demo"],
        ["export", "--max_sequence=64", "--num_layers=1", "--slots=2", "--output=served"],
        ["doctor"],
        ["completion", "bash"],
        ["train", "--help"],
    )


def test_export_generate_inspect_and_doctor_run(exported: list[tuple[int, str, str]], place: Place) -> None:
    assert [code for code, _, _ in exported] == [0] * len(exported), [err for _, _, err in exported]
    log = exported[0][2]
    assert "verifying ..." in log
    assert "verified on local-task" in log
    assert not re.search("vhlo|jax", log, re.IGNORECASE)
    report = json.loads((place.folder / "demo" / REPORT).read_text())
    assert report["left_out"] == {ARTIFACT: "JAX is not installed: pip install 'tapeline[jax]', and export again"}
    assert not (place.folder / "demo" / ARTIFACT).exists()
    assert ARTIFACT not in Bundle(place.folder / "demo").config.sha256
    assert len(exported[1][1]) > 4
    assert "JAX is not installed (pip install 'tapeline[jax]')" in exported[4][1]
    assert "--learning_rate" in exported[5][1]
    assert "--lora" in exported[6][1]


def test_the_module_is_that_of_an_installation_with_everything(
    exported: list[tuple[int, str, str]], place: Place, tmp_path: Path
) -> None:
    assert exported
    whole = export("demo", tmp_path / "whole", sequence=8, max_sequence=64, num_layers=1, target=())
    assert (whole / "module.mlir").read_bytes() == (place.folder / "demo" / "module.mlir").read_bytes()
    assert (whole / "weights.irpa").read_bytes() == (place.folder / "demo" / "weights.irpa").read_bytes()


@pytest.fixture(scope="module")
def refused(exported: list[tuple[int, str, str]], place: Place) -> list[tuple[int, str, str]]:
    """Runs what needs an extra."""
    assert exported
    return place.commands(*(arguments for arguments, _, _ in _REFUSED))


@pytest.mark.parametrize("number", range(len(_REFUSED)), ids=[purpose for _, _, purpose in _REFUSED])
def test_what_needs_an_extra_says_in_one_line_what_to_install(refused: list[tuple[int, str, str]], number: int) -> None:
    _, extra, purpose = _REFUSED[number]
    missing = ", ".join(lang_core.EXTRAS[extra])
    error = f"{purpose} needs packages that are not installed ({missing}): pip install 'tapeline[{extra}]'"
    assert refused[number] == (2, "", f"error: {error}\n")


def test_calls_that_need_an_extra_raise_one_kind_of_error(exported: list[tuple[int, str, str]], place: Place) -> None:
    assert exported
    lines = place.python(_CALLS).splitlines()
    extras = [line.rpartition("pip install ")[2] for line in lines]
    assert extras == [f"'tapeline[{extra}]'" for extra in ("audio", "images", "jax", "train", "jax", "jax")]
    assert {line.split()[0] for line in lines} == {"MissingPackageError"}


def test_without_the_compiler_bundles_run_and_exports_say_what_to_install(
    exported: list[tuple[int, str, str]], place: Place
) -> None:
    assert exported
    hidden = "import run_iree.compiler._compile as c; c._PACKAGE = 'iree.absent'\n"
    commands = [["export", "--output=x"], ["generate", "--bundle=demo", f"--prompt={_PROMPT}", "--max_new_tokens=2"]]
    export, generate = json.loads(place.python(hidden + _COMMANDS, json.dumps(commands)))
    message = "the IREE compiler is not installed: pip install iree-base-compiler, or export with --target=none"
    assert export == [2, "", f"error: {message}\n"]
    assert generate[0] == 0


@pytest.fixture(scope="module")
def server(exported: list[tuple[int, str, str]], place: Place) -> Iterator[ServerProcess]:
    assert exported
    with serving(place.folder / "server", f"--bundle={place.folder / 'served'}") as started:
        yield started
        assert started.end() == 0


def test_the_server_answers(server: ServerProcess) -> None:
    status, body = server.request("/v1/completions", {"model": "served", "prompt": _PROMPT, "max_tokens": 4})
    assert status == 200
    answer: Any = body["choices"][0]
    assert (answer["finish_reason"], body["usage"]["completion_tokens"]) == ("length", 4)
