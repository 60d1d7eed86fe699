"""--resume: an export that was stopped anywhere goes on, and ends with the bundle of one that was not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError
from tapeline.bundle import KernelConfig
from tapeline.cli import ProgressEvent
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product import _bundles
from tests.product._bundles import export, tree

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")

_ALL = {"lower", "parameters", "compile.vmvx", "portable", "verify"}
_EXPORTING = "tapeline.exporting."
_EXPORT = "import sys; from tapeline.command import main; sys.exit(main())"
_SIZES: dict[str, Any] = {"sequence": 6, "max_sequence": 16}
_OPTIONS: dict[str, Any] = {"sequence": 6, "num_layers": 1, "entry_points": ("forward",), "target": ("vmvx",)}
_OPTIONS |= {"verify": "iree"}
_UNVERIFIED: dict[str, Any] = _SIZES | {"target": (), "verify": "none"}

Export = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    write_checkpoint(directory, CASES["llama_gqa"], shards=2)
    return directory


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of an export that nothing stopped."""
    return export(model, tmp_path_factory.mktemp("whole") / "bundle", **_OPTIONS)


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, without a target."""
    return export(model, tmp_path_factory.mktemp("plain") / "bundle", **_UNVERIFIED)


def hashes(bundle: Path) -> dict[str, str]:
    return KernelConfig.read(bundle / "kernel_config.json").sha256


def reused(bundle: Path) -> set[str]:
    steps = json.loads((bundle / "report.json").read_text())["steps"]
    return {name for name, step in steps.items() if step["reused"]}


def stop(*_: object, **__: object) -> None:
    """Interrupts, as Ctrl-C does."""
    raise KeyboardInterrupt


def check_same(bundle: Path, whole: Path) -> None:
    assert hashes(bundle) == hashes(whole)
    assert sorted(os.listdir(bundle)) == sorted(os.listdir(whole))
    assert os.listdir(bundle.parent) == [bundle.name]


@pytest.mark.parametrize(
    ("stopped_in", "done"),
    [
        ("_compile.compile_module", {"lower"}),
        ("_export.write_portable", {"lower", "compile.vmvx"}),
        ("_export.check_devices", _ALL - {"verify"}),
        ("_export.write_report", _ALL),
    ],
)
def test_only_what_is_missing_is_done(
    model: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_in: str, done: set[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(_EXPORTING + stopped_in, stop)
        with pytest.raises(KeyboardInterrupt):
            export(model, tmp_path / "bundle", **_OPTIONS)
    assert os.listdir(tmp_path) == [".bundle.partial"]
    export(model, tmp_path / "bundle", resume=True, **_OPTIONS)
    assert reused(tmp_path / "bundle") == done
    check_same(tmp_path / "bundle", whole)


def test_an_archive_goes_on_where_it_stopped(
    model: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("run_iree.archive._writer.MARK_BYTES", 1000)

    done: list[int] = []

    def interrupt(event: ProgressEvent) -> None:
        """After some bytes, the user's Ctrl-C."""
        if event.done is not None and event.total is not None:
            done.append(event.done)
            if 30_000 < event.done < event.total:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tapeline.export(model, tmp_path / "bundle", progress=interrupt, **_UNVERIFIED)
    first, begun = done[0], len(done)
    tapeline.export(
        model,
        tmp_path / "bundle",
        resume=True,
        progress=lambda event: None if event.done is None else done.append(event.done),
        **_UNVERIFIED,
    )
    assert done[begun] > first
    check_same(tmp_path / "bundle", plain)


def test_kill_at_random_moments(model: Path, tmp_path: Path) -> None:
    flags = [f"--model={model}", "--sequence=6", "--max_sequence=16", "--target=none", "--verify=none", "--resume"]
    wanted = export(model, tmp_path / "whole", sequence=6, max_sequence=16, target=())
    output = tmp_path / "killed" / "bundle"
    rng, kills = random.Random(7), 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    while not (output / "report.json").exists():
        command = [sys.executable, "-c", _EXPORT, "export", f"--output={output}", *flags]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                # From the end of the imports on, and later each time: it comes to an end.
                _, said = process.communicate(timeout=0.5 + rng.uniform(0, 0.6) + 0.3 * kills)
                assert process.returncode == 0, said
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
    assert kills
    check_same(output, wanted)
    for name, content in tree(wanted).items():
        if name not in ("report.json", "kernel_config.json"):
            assert (output / name).read_bytes() == content


def test_a_finished_export_is_only_checked(model: Path, plain: Path, tmp_path: Path) -> None:
    for _ in range(2):
        export(model, tmp_path / "bundle", resume=True, **_UNVERIFIED)
    assert reused(tmp_path / "bundle") == {"lower", "parameters", "portable"}
    check_same(tmp_path / "bundle", plain)


def test_another_target_is_compiled_beside_what_is_there(model: Path, plain: Path, tmp_path: Path) -> None:
    export(model, tmp_path / "bundle", **_UNVERIFIED)
    export(model, tmp_path / "bundle", resume=True, **(_UNVERIFIED | {"target": ("vmvx",)}))
    assert reused(tmp_path / "bundle") == {"lower", "parameters", "portable"}
    digests = hashes(tmp_path / "bundle")
    assert digests.pop("module.vmvx.vmfb")
    assert digests == hashes(plain)


def test_what_changed_is_done_again(model: Path, tmp_path: Path) -> None:
    mine = tmp_path / "model"
    mine.mkdir()
    write_checkpoint(mine, CASES["llama_gqa"], shards=2)
    options = _UNVERIFIED
    export(mine, tmp_path / "b" / "bundle", **options)
    before = hashes(tmp_path / "b" / "bundle")
    shard = mine / "model-00001-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    export(mine, tmp_path / "b" / "bundle", resume=True, **options)
    assert reused(tmp_path / "b" / "bundle") == {"lower", "portable"}
    after = hashes(tmp_path / "b" / "bundle")
    assert {name for name, digest in after.items() if digest != before[name]} == {"weights.irpa"}
    export(mine, tmp_path / "b" / "bundle", resume=True, **(options | {"dtype": "bf16"}))
    assert reused(tmp_path / "b" / "bundle") == set()
    check_same(tmp_path / "b" / "bundle", export(mine, tmp_path / "c" / "bundle", **(options | {"dtype": "bf16"})))


def test_inline_weights_are_not_written_twice(model: Path, tmp_path: Path) -> None:
    options = _UNVERIFIED | {"weights": "inline"}
    wanted = export(model, tmp_path / "whole" / "bundle", **options)
    export(model, tmp_path / "b" / "bundle", **options)
    export(model, tmp_path / "b" / "bundle", resume=True, **options)
    assert reused(tmp_path / "b" / "bundle") == {"lower", "portable"}
    check_same(tmp_path / "b" / "bundle", wanted)


@pytest.mark.parametrize(
    ("name", "step"), [("module.mlir", "lower"), ("weights.irpa", "parameters"), ("module.vhlo", "portable")]
)
def test_a_file_that_was_damaged_is_made_again(model: Path, plain: Path, tmp_path: Path, name: str, step: str) -> None:
    shutil.copytree(plain, tmp_path / "bundle")
    with (tmp_path / "bundle" / name).open("r+b") as file:
        file.seek(100)
        file.write(b"\x01\x02")
    export(model, tmp_path / "bundle", resume=True, **_UNVERIFIED)
    assert reused(tmp_path / "bundle") == {"lower", "parameters", "portable"} - {step}
    check_same(tmp_path / "bundle", plain)


def test_the_earlier_bundle_is_never_written_into(
    model: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(plain, tmp_path / "bundle")
    before = tree(tmp_path / "bundle")
    for changes in ({}, {"dtype": "bf16"}, {}):  # the first links the bundle's files
        with monkeypatch.context() as patched:
            patched.setattr(_EXPORTING + "_export.write_report", stop)
            with pytest.raises(KeyboardInterrupt):
                export(model, tmp_path / "bundle", resume=True, **(_UNVERIFIED | changes))
        assert tree(tmp_path / "bundle") == before
    export(model, tmp_path / "bundle", resume=True, **_UNVERIFIED)
    check_same(tmp_path / "bundle", plain)


@pytest.mark.parametrize("notes", ["{", '{"lower": {"key": "x"}}'])
def test_damaged_notes_mean_a_new_start(model: Path, plain: Path, tmp_path: Path, notes: str) -> None:
    staging = tmp_path / ".bundle.partial"
    staging.mkdir()
    (staging / "steps.json").write_text(notes)
    export(model, tmp_path / "bundle", resume=True, **_UNVERIFIED)
    assert reused(tmp_path / "bundle") == set()
    check_same(tmp_path / "bundle", plain)


def test_without_resume_everything_is_done(model: Path, plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "bundle")
    export(model, tmp_path / "bundle", **_UNVERIFIED)
    assert reused(tmp_path / "bundle") == set()


def test_a_budget_is_refused_before_any_work(model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"max_memory=50.00 MiB: the phase 'compile' needs about .* MiB \(.*for the program itself; .*\): "
        r"give that much, or choose target=none",
    ):
        export(model, tmp_path / "bundle", max_memory=50 << 20, **_OPTIONS)
    assert os.listdir(tmp_path) == []


def test_a_budget_that_suffices_is_kept(model: Path, whole: Path, tmp_path: Path) -> None:
    budget = 1 << 30
    export(model, tmp_path / "bundle", max_memory=budget, **_OPTIONS)
    check_same(tmp_path / "bundle", whole)
    report = json.loads((tmp_path / "bundle" / "report.json").read_text())
    for phase, predicted in report["predicted"]["peak_anonymous_bytes"].items():
        assert report["actual"]["peak_anonymous_bytes"][phase] <= predicted, phase
    compiler = report["actual"]["peak_child_rss_bytes"]["compile"]
    assert 0 < compiler <= report["predicted"]["peak_child_rss_bytes"]["compile"] < budget


def test_a_verification_by_the_interpreter_is_predicted_with_the_weights(tmp_path: Path) -> None:
    """The interpreter gets all weights as arguments, in a process of its own."""
    parsed, interpreted = (
        tapeline.predict_export("demo", tmp_path / "bundle", verify=kind, target=())
        for kind in ("parse", "interpreter")
    )
    weights = parsed["parameters"]["bytes"]
    for peak, times in (("peak_anonymous_bytes", 1), ("peak_child_rss_bytes", 3)):
        assert interpreted[peak]["verify"] >= parsed[peak]["verify"] + times * weights
