"""--dump_tags of tools:export, and the dumps of tools:generate."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from compile_hlo.emit import is_helper
from lang_core import InputError
from runtime.dump import Dump, Dumper, DumpWriter, eager_call, kernel_sites, read_dump, tags_by_entry_point
from tapeline.backends import ENGINES
from tapeline.bundle import ARTIFACT, DEBUG_MODULE, MARK, MODULE, Bundle, KernelConfig, debug_executable_name
from tapeline.exporting import ExportOptions
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import Finished, export, export_case, invoke, refused
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderLM, entry_points, load_config

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")

_CASE = CASES["llama_gqa"]
_PROMPT = _CASE.prompt[0]
_SIZES: dict[str, Any] = {"sequence": 4, "max_sequence": len(_PROMPT) + _CASE.steps}
_GLOBS = ("*", "model.layers.1.self_attn.scores")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_case(_CASE, tmp_path_factory.mktemp("debug"), dump_tags=_GLOBS, **_SIZES)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Path:
    return export(bundle.parent / "model", tmp_path_factory.mktemp("plain") / "bundle", **_SIZES)


@pytest.fixture
def on_iree(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    prompt = ",".join(map(str, _PROMPT))
    return lambda bundle, *flags: invoke(
        "generate", capsys, f"--bundle={bundle}", f"--token_ids={prompt}", "--max_new_tokens=3", *flags
    )


@pytest.fixture(params=ENGINES)
def generating(request: pytest.FixtureRequest, on_iree: Callable[..., Finished]) -> Callable[..., Finished]:
    return lambda bundle, *flags: on_iree(bundle, f"--backend={request.param}", *flags)


@pytest.fixture(params=ENGINES if os.environ.get("TAPELINE_LONG") else ("iree",))
def generating_fast(request: pytest.FixtureRequest, on_iree: Callable[..., Finished]) -> Callable[..., Finished]:
    """Runs ``generate``; on JAX, which compiles for each call of the command, with TAPELINE_LONG=1."""
    return lambda bundle, *flags: on_iree(bundle, f"--backend={request.param}", *flags)


def test_the_module_itself_is_as_without_dump_tags(bundle: Path, plain: Path) -> None:
    assert (bundle / MODULE).read_bytes() == (plain / MODULE).read_bytes()
    described = [json.loads((folder / MARK).read_text()) for folder in (bundle, plain)]
    assert described[1]["debug"] is None
    files = {DEBUG_MODULE, debug_executable_name("llvm-cpu")}
    assert set(described[0]["sha256"]) - set(described[1]["sha256"]) == files
    assert files <= {path.name for path in bundle.iterdir()}


def test_the_debug_module_is_flat_and_described(bundle: Path) -> None:
    text = (bundle / DEBUG_MODULE).read_text()
    assert all(map(is_helper, re.findall(r"func\.func private @([\w.]+)", text)))
    debug = KernelConfig.read(bundle / MARK).debug
    assert debug is not None
    assert (debug.tags, debug.module) == (list(_GLOBS), DEBUG_MODULE)
    assert debug.targets == {"llvm-cpu": debug_executable_name("llvm-cpu")}
    keys = re.findall(r'flow.tensor.trace"\(.*?key = "([^"]*)"', text)
    assert [key for key in keys if ":" not in key] == [tag.name for tags in debug.entry_points.values() for tag in tags]
    calls = [site.name for sites in debug.kernels.values() for site in sites]
    marked = [f"{when}:{name}" for name in calls for when in ("before", "after")]
    assert sorted(key for key in keys if ":" in key) == sorted(marked)
    names = [tag.name for tag in debug.entry_points["prefill"]]
    assert [name for name in names if "scores" in name] == ["model.layers.1.self_attn.scores"]
    assert names[-2:] == ["model.norm.output", "logits"]
    assert "model.layers.0.self_attn.q" in names


def _generate(generating: Callable[..., Finished], bundle: Path, directory: Path, level: int) -> tuple[Dump, Finished]:
    done = generating(bundle, f"--dump={directory.name}", f"--dump_level={level}", f"--logits={directory.name}.npy")
    assert done.code == 0, done.err
    return read_dump(directory), done


def test_prefill_and_every_decoded_token_are_steps(
    bundle: Path, generating_fast: Callable[..., Finished], tmp_path: Path
) -> None:
    dump, done = _generate(generating_fast, bundle, tmp_path / "dump", 1)
    chunks = -(-len(_PROMPT) // 4)
    steps = {record.step: record.entry_point for record in dump.records}
    assert steps == {step: "prefill" if step < chunks else "decode" for step in range(chunks + 2)}
    for step, name in steps.items():
        assert {r.name for r in dump.records if r.step == step} == set(dump.order[name])
    logits = np.load(tmp_path / "dump.npy")
    actual = [dump.load(record)[0] for record in dump.records if record.name == "logits" and record.step >= chunks - 1]
    np.testing.assert_array_equal(np.stack(actual), logits)
    assert f"dump: {len(dump.records)} tensors, {len(dump.records)} payloads of " in done.err


def test_tags_change_no_token_and_hardly_a_logit(
    bundle: Path, plain: Path, generating: Callable[..., Finished], tmp_path: Path
) -> None:
    with_tags = generating(bundle, "--dump=dump", "--logits=a.npy")
    without = generating(plain, "--logits=b.npy")
    assert with_tags.out == without.out
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"), rtol=1e-4, atol=1e-5)
    assert generating(bundle, "--logits=c.npy").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), np.load(tmp_path / "b.npy"))


def test_the_eager_context_dumps_the_same_calls(
    bundle: Path, generating: Callable[..., Finished], tmp_path: Path
) -> None:
    dump, _ = _generate(generating, bundle, tmp_path / "dump", 2)
    for level in (2, 3) if os.environ.get("TAPELINE_LONG") else (3,):
        _check_with_eager(bundle, dump, tmp_path / f"eager{level}", level)


def _check_with_eager(bundle: Path, dump: Dump, directory: Path, level: int) -> None:
    model = DecoderLM(load_config(bundle.parent / "model"))
    points = {point.name: point for point in entry_points(model, **_SIZES)}
    with (
        SafetensorsCheckpoint(bundle.parent / "model") as weights,
        DumpWriter(directory, level=level, source={"context": "eager"}, tags=_GLOBS) as writer,
    ):
        called = tuple(points.values())
        dumper = Dumper(writer, tags_by_entry_point(called, _GLOBS), kernel_sites(called, _GLOBS))
        for step in range(max(record.step for record in dump.records) + 1):
            given = [record for record in dump.records if (record.step, record.when) == (step, "before")]
            eager_call(dumper, points[given[0].entry_point], weights, {r.name: dump.load(r) for r in given})
    eager = {record.key: record for record in read_dump(directory).records}
    assert set(eager) == {record.key for record in dump.records}
    for record in dump.records:
        other = eager[record.key]
        facts = ("direction", "module_path", "op", "line", "dtype", "shape", "kernel", "call_site", "layer")
        assert [getattr(record, fact) for fact in facts] == [getattr(other, fact) for fact in facts]
        if other.file is not None and record.name != "model.layers.1.self_attn.scores":  # masked ones are -1e30
            np.testing.assert_allclose(dump.load(record), read_dump(directory).load(other), rtol=1e-3, atol=1e-4)


def test_engines_dump_the_same_tensors(bundle: Path, on_iree: Callable[..., Finished], tmp_path: Path) -> None:
    for engine in ENGINES:
        done = on_iree(bundle, f"--backend={engine}", f"--dump={engine}", "--dump_level=2")
        assert done.code == 0, done.err
    comparison = tapeline.compare_dumps(tmp_path / "jax", tmp_path / "iree")
    assert {tensor.state for tensor in comparison.tensors} == {"agrees"}
    dump = read_dump(tmp_path / "jax")
    assert (dump.source["device"], dump.source["module"]) == ("cpu", DEBUG_MODULE)
    assert {(row["module"], row["function"]) for row in dump.agreement} == {
        pair for name in ("prefill", "decode") for pair in ((ARTIFACT, name), (DEBUG_MODULE, f"kernels.{name}"))
    }


def test_limits_are_the_users(bundle: Path, generating_fast: Callable[..., Finished], tmp_path: Path) -> None:
    done = generating_fast(bundle, "--dump=dump", "--dump_limit=300B,2KiB")
    dump = read_dump(tmp_path / "dump")
    assert dump.limits == {"tensor_bytes": 300, "total_bytes": 2048}
    reasons = {record.dropped for record in dump.records}
    assert reasons == {None, "tensor_limit", "total_limit"}
    assert "dropped by the tensor limit" in done.err
    assert "dropped by the total limit" in done.err


def test_level_two_of_a_plain_bundle_shows_arguments_and_results(
    plain: Path, generating_fast: Callable[..., Finished], tmp_path: Path
) -> None:
    dump, _ = _generate(generating_fast, plain, tmp_path / "dump", 2)
    assert {record.direction for record in dump.records} == {"IN", "OUT", "INOUT"}
    assert dump.tags is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dump=dump"], "--dump_level=1 dumps tagged tensors, and "),
        (["--dump=dump", "--dump_level=3"], "has no debug module: export with --dump_tags='*'"),
        (["--dump=dump", "--dump_level=4"], "--dump_level=4: expected 0 (off), 1, 2, 3"),
        (["--dump_level=1"], "--dump_level=1: name the directory of the dump with --dump"),
        (
            ["--dump=dump", "--dump_level=2", "--dump_limit=1,2,3"],
            "--dump_limit=1,2,3: expected TENSOR or TENSOR,TOTAL",
        ),
        (["--dump=dump", "--dump_level=2", "--dump_limit=much"], "--dump_limit=much: expected a size such as"),
        (["--dump=full", "--dump_level=2"], "full: the directory is not empty: choose another, or empty it"),
    ],
)
def test_flags_that_cannot_be(
    plain: Path, generating: Callable[..., Finished], tmp_path: Path, flags: list[str], message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    refused(generating(plain, *flags), message)
    assert not (tmp_path / "dump").exists()


def test_a_refusal_before_the_first_tensor_leaves_no_dump(
    plain: Path, on_iree: Callable[..., Finished], tmp_path: Path
) -> None:
    refused(on_iree(plain, "--dump=dump", "--dump_level=2", "--device=vmvx"), "was compiled for llvm-cpu")
    assert not (tmp_path / "dump").exists()


def test_level_zero_dumps_nothing(plain: Path, generating_fast: Callable[..., Finished], tmp_path: Path) -> None:
    done = generating_fast(plain, "--dump=dump", "--dump_level=0", "--dump_limit=none")
    assert done.code == 0
    assert not (tmp_path / "dump").exists()


def test_a_debug_module_that_is_lost_or_of_another_target(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (copy / debug_executable_name("llvm-cpu")).unlink()
    with DumpWriter(tmp_path / "dump", level=1, source={}) as writer:
        with pytest.raises(InputError, match=r"lost module\.debug\.llvm-cpu\.vmfb, which kernel_config\.json lists"):
            Bundle(copy).session("local-task", Dumper(writer, {}))
        with pytest.raises(InputError, match=r"'vmvx' runs modules of target vmvx; .* was compiled for llvm-cpu"):
            Bundle(bundle).session("vmvx", Dumper(writer, {}))


def test_a_damaged_description(bundle: Path, tmp_path: Path) -> None:
    fields = json.loads((bundle / MARK).read_text())
    for change in ({"entry_points": []}, {"entry_points": {"decode": [{"name": "x"}]}}, {"targets": None}):
        (tmp_path / MARK).write_text(json.dumps(fields | {"debug": fields["debug"] | change}))
        with pytest.raises(InputError, match=r"kernel_config\.json: damaged \(.*\): export the bundle again"):
            Bundle(tmp_path)


def test_a_glob_that_matches_nothing_writes_nothing(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tags '\*\.qq': no tensor of the model .*; did you mean '\*\.q'\?; its tags"):
        export(bundle.parent / "model", tmp_path / "out", dump_tags=("*.q", "*.qq"), **_SIZES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [",", "*.q,", "*.q,*.q"])
def test_globs_that_are_no_list(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke("export", capsys, f"--dump_tags={text}", f"--output={tmp_path / 'out'}")
    refused(done, f"--dump_tags={text}: expected names or globs, each once")
    assert not (tmp_path / "out").exists()


def test_globs_of_the_command_are_those_of_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[ExportOptions] = []

    def dry_run(options: ExportOptions, *_: object) -> dict[str, object]:
        chosen.append(options)
        raise InputError("enough")

    monkeypatch.setattr("tapeline.exporting._api.dry_run", dry_run)
    for text in (" *.q , logits", ""):
        invoke("export", capsys, "--dry_run", f"--dump_tags={text}", f"--output={tmp_path / 'out'}")
    assert [tuple(options.dump_tags) for options in chosen] == [("*.q", "logits"), ()]


def test_the_debug_module_is_predicted_and_resumed(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "bundle")
    report = json.loads((copy / "report.json").read_text())
    assert report["predicted"]["files"][DEBUG_MODULE] == (bundle / DEBUG_MODULE).stat().st_size
    assert debug_executable_name("llvm-cpu") in report["predicted"]["estimated"]
    model = bundle.parent / "model"
    export(model, copy, dump_tags=_GLOBS, resume=True, **_SIZES)
    steps = json.loads((copy / "report.json").read_text())["steps"]
    assert steps["lower.debug"]["reused"]
    assert steps["compile.debug.llvm-cpu"]["reused"]
    export(model, copy, dump_tags=("logits",), resume=True, **_SIZES)
    steps = json.loads((copy / "report.json").read_text())["steps"]
    assert steps["compile.llvm-cpu"]["reused"]
    assert not steps["compile.debug.llvm-cpu"]["reused"]
    assert (copy / DEBUG_MODULE).read_text().count("flow.tensor.trace") == 2
