"""Helpers of the end-to-end tests: checkpoints of golden cases, exports of them, generation with a bundle."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import tapeline
from generation import SamplingConfig
from generation.engine import AnswerSteps, EngineSettings, OneRow, StepEngine, TokenRequest
from run_iree import CompileReport, ModuleCache, Target, available, compile_module, target_of_device
from tapeline.bundle import MARK, Bundle
from tapeline.command import main
from tapeline.runners import BundleModel
from tests.goldens.cases import GoldenCase
from tests.goldens.weights import write_checkpoint

# Mesa's Vulkan device and vmvx take up to a minute per token. There goldens_test runs a whole bundle and tests/emission
# every op; the other device tests run with TAPELINE_LONG=1.
ON_FAST_DEVICES: Final = pytest.mark.skipif(
    os.environ.get("TAPELINE_DEVICE") in ("vmvx", "vulkan") and not os.environ.get("TAPELINE_LONG"),
    reason="whole bundles on vmvx and Vulkan run with TAPELINE_LONG=1",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Finished:
    """Result of a command.

    Attributes:
        code: its exit code.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
    """

    code: int
    out: str
    err: str


_TOOLS: Final = importlib.import_module("compile_hlo.portable._stablehlo")


@contextlib.contextmanager
def stablehlo_here() -> Iterator[None]:
    """Lets StableHLO's tools run in this process: a child is nearly all imports. Programs have children."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("compile_hlo.portable._child._in_child", lambda name, *args: getattr(_TOOLS, name)(*args))
        yield


def invoke(command: str, capsys: pytest.CaptureFixture[str], *arguments: Any) -> Finished:
    """Runs a command of ``tapeline`` in this process."""
    capsys.readouterr()
    with stablehlo_here():
        code = main([command, *map(str, arguments)])
    streams = capsys.readouterr()
    return Finished(code, streams.out, streams.err)


def refused(done: Finished, message: str) -> None:
    """Checks that a program ended with one error that says this, and nothing else."""
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err


class CompiledOnce:
    """Compiles like ``compile_module``, and copies the result where the text and the target were compiled before.

    Args:
        folder: keeps the results.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._reports = folder, dict[str, CompileReport]()

    def __call__(
        self,
        source: Path,
        output: Path,
        target: Target,
        *,
        extra_flags: Sequence[str] = (),
        cache: ModuleCache | None = None,
    ) -> CompileReport:
        del cache
        identity = f"{source.name} {target} {extra_flags} ".encode() + source.read_bytes()  # the name is in the result
        key = hashlib.sha256(identity).hexdigest()
        if key in self._reports:
            shutil.copyfile(self._folder / key, output)
        else:
            self._reports[key] = compile_module(source, output, target, extra_flags=extra_flags)
            shutil.copyfile(output, self._folder / key)
        return self._reports[key]


@functools.cache
def _compiling(folder: Path) -> CompiledOnce:
    folder.mkdir()
    return CompiledOnce(folder)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets exports and comparisons of this file, and of others that ask for it, compile equal modules once."""
    with pytest.MonkeyPatch.context() as patched:
        compiling = _compiling(tmp_path_factory.getbasetemp() / "compiled")
        for module in ("exporting._compile", "exporting._tune", "divergence._runners"):
            patched.setattr(f"tapeline.{module}.compile_module", compiling)
        yield


def export(model: Path | str, output: Path, **options: Any) -> Path:
    """Exports a model, without verification unless ``verify`` is given; returns the bundle."""
    chosen: Any = {"verify": "none", **options}
    with tapeline.TerminalProgress() as progress, stablehlo_here():
        return tapeline.export(model, output, progress=progress, **chosen).path


@functools.cache
def _demo(folder: Path) -> Path:
    return export("demo", folder / "one", num_layers=1, sequence=8, max_sequence=96)


@functools.cache
def _slots(folder: Path) -> Path:
    return export("demo", folder / "slots", num_layers=1, sequence=8, max_sequence=96, slots=3)


# A fixture that several files import is made once per file, what it calls once per process.
@pytest.fixture(scope="session")
def demo_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's first layer, caches of 96 positions: one export for all files of a target. To change it, copy it."""
    return _demo(tmp_path_factory.getbasetemp() / "demo_layer")


@pytest.fixture(scope="session")
def demo_slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for three prompts at once."""
    return _slots(tmp_path_factory.getbasetemp() / "demo_layer")


def export_case(case: GoldenCase, directory: Path, *, shards: int = 1, **options: Any) -> Path:
    """Writes a golden case's checkpoint below a directory and exports it; returns the bundle."""
    model = directory / "model"
    model.mkdir(parents=True)
    write_checkpoint(model, case, shards=shards)
    return export(model, directory / "bundle", **options)


def export_stored(file: Path, device: str, **options: Any) -> Path:
    """Exports a GGUF file for a device, beside it and verified there; skips the test where the device is absent."""
    present, why = available(device)
    if not present:
        pytest.skip(why)
    return export(file, file.parent / "bundle", target=(target_of_device(device),), verify="iree", **options)


def greedy(bundle: Path, device: str, prompt: Sequence[int], steps: int) -> tuple[list[int], np.ndarray]:
    """The likeliest tokens, and the logits f32 [steps, V] that each was chosen from."""
    opened = Bundle(bundle)
    with opened.session(device) as session:
        engine = StepEngine(OneRow(BundleModel(opened, session)), EngineSettings(exact=False, store_bytes=0))
        request = TokenRequest(prompt=prompt, sampling=SamplingConfig(), max_new_tokens=steps, predictions=True)
        # The logits are the session's until they are read.
        taken = [(step.token_id, step.logits.copy()) for _, step in AnswerSteps(engine, [request])]
    return [token_id for token_id, _ in taken], np.stack([logits for _, logits in taken])


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones too."""
    return {
        os.path.relpath(os.path.join(folder, name), directory): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(directory)
        for name in names
    }


def replace_file(bundle: Path, name: str, text: str) -> None:
    """Writes a file of a bundle anew, and its hash into the description, as if it had been exported like that."""
    (bundle / name).write_text(text)
    config = json.loads((bundle / MARK).read_text())
    config["sha256"][name] = hashlib.sha256(text.encode()).hexdigest()
    (bundle / MARK).write_text(json.dumps(config))
