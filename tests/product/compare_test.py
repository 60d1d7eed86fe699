"""tools:compare on dumps, bundles and the eager context."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from run_iree.archive import read_archive_index
from runtime.dump import DumpWriter, TensorLabel, read_dump
from tapeline.bundle import MARK
from tapeline.command import load_command
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import Finished, export, export_case, invoke

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")

Compare = Callable[..., Finished]
_CASE = CASES["llama_gqa"]
_SIZES = {"num_layers": 2, "sequence": 3, "max_sequence": 7}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_case(_CASE, tmp_path_factory.mktemp("compare"), **_SIZES)


@pytest.fixture
def comparing(capsys: pytest.CaptureFixture[str]) -> Compare:
    return lambda *flags: invoke("compare", capsys, *flags)


def _copy_with_other_weights(bundle: Path, copy: Path, name: str) -> Path:
    """The bundle with one weight twice as large."""
    shutil.copytree(bundle, copy)
    record = read_archive_index(copy / "weights.irpa")[name]
    with (copy / "weights.irpa").open("r+b") as file:
        file.seek(record.offset)
        weights = 2 * np.frombuffer(file.read(record.nbytes), np.float32)
        file.seek(record.offset)
        file.write(weights.tobytes())
    return copy


def _dump(directory: Path, broken: Sequence[str] = ()) -> Path:
    with DumpWriter(directory, level=1, source={"context": "eager"}, tags=["*"]) as writer:
        for step in (0, 1):
            for name in ("model.layers.0.output", "model.layers.1.output", "model.layers.2.output"):
                random = np.random.default_rng(step)
                array = random.standard_normal((2, 5)).astype(np.float32) * (1 + (name in broken))
                label = TensorLabel(
                    step=step, entry_point="f", name=name, direction="TAG", when="during", iteration=0, op="add"
                )
                writer.add(label, array, payload=True)
    return directory


def test_every_flag_is_there() -> None:
    ours = set(load_command("compare").FLAGS)
    assert ours == set(
        "actual reference model device backend mesh checkpoint reference_device reference_backend entry_point input "
        "tolerance inside format every picture verify_files trust_compiled".split()
    )


def test_a_bundle_agrees_with_the_eager_context(comparing: Compare, bundle: Path) -> None:
    done = comparing(f"--actual={bundle}")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(
        f"{bundle} on local-task against the eager context with the weights of {bundle}: of 12 tensors 12 agree, 0 "
        f"differ (tolerance 1e-04)\n"
    )
    other = comparing(
        f"--actual={bundle}", f"--model={bundle.parent / 'model'}", "--format=json", "--device=local-sync"
    )
    assert (other.code, other.err) == (0, "")
    actual = json.loads(other.out)
    assert (actual["reference"], actual["first_divergence"]) == ("the eager context", None)
    assert [tensor["state"] for tensor in actual["tensors"]] == ["agrees"] * 12
    assert {tensor["entry_point"] for tensor in actual["tensors"]} == {"prefill", "decode"}


def test_bundles_that_differ(comparing: Compare, bundle: Path, tmp_path: Path) -> None:
    other = _copy_with_other_weights(bundle, tmp_path / "other", "model.layers.1.self_attn.k_proj.weight")
    done = comparing(f"--actual={other}", f"--reference={bundle}", "--every", f"--picture={tmp_path / 'p.svg'}")
    assert done.code == 3
    assert done.err.startswith("comparing the inside of prefill ...\nerror: first divergence: op parameter, ")
    assert "block model.layers.1, module model.layers.1.self_attn.k_proj, " in done.err
    assert "(TAG of prefill, step 0): max abs " in done.err
    rows = {tuple(line.split()[:3]): line.split()[4] for line in done.out.splitlines() if " after " in line}
    assert rows["0", "prefill", "layers.0.key_cache"] == "agrees"
    assert rows["0", "prefill", "layers.1.key_cache"] == rows["0", "prefill", "logits"] == "differs"
    assert ElementTree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
    outside = comparing(f"--actual={other}", f"--reference={bundle}", "--inside=never")
    assert outside.err.startswith("error: first divergence: block layers.1: tensor 'layers.1.key_cache' (INOUT of ")
    same = comparing(f"--actual={bundle}", f"--reference={bundle}", "--reference_device=local-sync")
    assert same.code == 0


def test_inside_of_what_agrees(comparing: Compare, bundle: Path) -> None:
    done = comparing(f"--actual={bundle}", "--inside=always", "--entry_point=decode", "--format=json")
    assert done.code == 0
    assert done.err == "comparing the inside of decode ...\nall inner tensors agree when the module returns them\n"
    tensors = json.loads(done.out)["tensors"]
    inner = {tensor["name"]: tensor for tensor in tensors if tensor["when"] == "during"}
    assert {tensor["state"] for tensor in tensors} == {"agrees"}
    assert {"model.layers.0.input", "model.layers.1.self_attn.q", "model.layers.1.output"} <= set(inner)
    assert inner["model.layers.1.output"]["op"] == "add"


def test_given_inputs_and_one_entry_point(comparing: Compare, bundle: Path, tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"token_ids": np.array([[9]], np.int32), "position": np.array(2, np.int32)}
    for i in range(_SIZES["num_layers"]):
        for name in ("key", "value"):
            cache = np.random.default_rng(i).standard_normal((1, 3, _SIZES["max_sequence"], 8))
            arrays[f"layers.{i}.{name}_cache"] = cache.astype(np.float32)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [f"--input={name}={tmp_path / name}.npy" for name in arrays]
    done = comparing(f"--actual={bundle}", "--entry_point=decode", *given, "--format=json")
    assert (done.code, done.err) == (0, "")
    assert {tensor["entry_point"] for tensor in json.loads(done.out)["tensors"]} == {"decode"}
    assert comparing(f"--actual={bundle}", "--entry_point=decode").code == 0


def test_other_dtypes_are_compared_at_the_coarser_tolerance(comparing: Compare, bundle: Path, tmp_path: Path) -> None:
    coarse = export(bundle.parent / "model", tmp_path / "bf16", dtype="bf16", **_SIZES)
    done = comparing(f"--actual={coarse}", f"--reference={bundle}", "--format=json", "--inside=never")
    assert json.loads(done.out)["tolerance"] == 3e-2
    assert comparing(f"--actual={coarse}", f"--reference={bundle}", "--tolerance=0.1").code == 0


def test_bundles_of_other_sizes_are_mismatched(comparing: Compare, bundle: Path, tmp_path: Path) -> None:
    model = bundle.parent / "model"
    longer = export(model, tmp_path / "longer", **{**_SIZES, "sequence": 4}, target=())
    done = comparing(f"--actual={bundle}", f"--reference={longer}")
    assert (done.code, done.out) == (2, "")
    assert "mismatched bundles: entry point 'prefill', argument 'token_ids': i32[1, 3] in " in done.err
    fewer = export(model, tmp_path / "fewer", **{**_SIZES, "num_layers": 1}, target=())
    done = comparing(f"--actual={bundle}", f"--reference={fewer}")
    assert "argument 'layers.1.key_cache': float[1, 3, 7, 8] in " in done.err
    assert f"is not there in {fewer}: export both with the same sizes" in done.err
    forward = export(model, tmp_path / "forward", num_layers=2, sequence=3, entry_points=("forward",), target=())
    done = comparing(f"--actual={bundle}", f"--reference={forward}")
    assert (done.code, done.out) == (2, "")
    assert f"mismatched bundles: {bundle} has the entry points prefill, decode; {forward} has forward" in done.err


def test_dumps(comparing: Compare, tmp_path: Path) -> None:
    reference = _dump(tmp_path / "a")
    actual = _dump(tmp_path / "b", ["model.layers.1.output", "model.layers.2.output"])
    assert comparing(f"--actual={reference}", f"--reference={reference}").code == 0
    done = comparing(f"--actual={actual}", f"--reference={reference}", f"--picture={tmp_path / 'p.png'}")
    assert done.code == 3
    assert "first divergence: op add, block model.layers.1: tensor " in done.err
    assert "of 6 tensors 2 agree, 4 differ (tolerance 1e-04)" in done.out
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert comparing(f"--actual={actual}", f"--reference={reference}", "--tolerance=3").code == 0


def test_a_dump_that_ended_early_is_said_so(comparing: Compare, tmp_path: Path) -> None:
    reference = _dump(tmp_path / "a")
    whole = read_dump(reference)
    fields = {field.name: getattr(whole.records[0], field.name) for field in dataclasses.fields(TensorLabel)}
    writer = DumpWriter(tmp_path / "b", level=1, source={})
    writer.add(TensorLabel(**fields), whole.load(whole.records[0]), payload=True)
    writer.close(KeyError("stop"))
    done = comparing(f"--actual={tmp_path / 'b'}", f"--reference={reference}")
    assert done.code == 0
    assert done.err == f"warning: {tmp_path / 'b'} ends early: KeyError: 'stop'\n"
    assert f"not in {tmp_path / 'b'}: model.layers.1.output, model.layers.2.output, model.layers.0.output" in done.out
    assert "5 are on one side only" in done.out


def test_wrong_input(comparing: Compare, bundle: Path, tmp_path: Path) -> None:
    dump, text = _dump(tmp_path / "a"), tmp_path / "t"
    text.mkdir()
    damaged = _dump(tmp_path / "b")
    (damaged / "manifest.json").write_text("{")
    bare = Path(shutil.copytree(bundle, tmp_path / "bare"))
    (bare / "weights.irpa").unlink()
    for flags, message in (
        ([f"--actual={dump}"], "is a dump: give another dump as --reference"),
        ([f"--actual={bundle}", f"--reference={dump}"], "a dump: give two alike"),
        ([f"--actual={dump}", f"--reference={bundle}"], "is not a dump: it has no manifest.json: make one with"),
        ([f"--actual={text}"], f"is not a bundle: it has no {MARK}: export one first"),
        ([f"--actual={dump}", f"--reference={damaged}"], "the manifest is damaged; dump again"),
        ([f"--actual={bare}"], "has no weights.irpa with weights for the eager context: give the model's checkpoint"),
        ([f"--actual={bundle}", "--entry_point=decod"], "has no entry point 'decod'"),
        ([f"--actual={bundle}", "--input=x=y.npy"], "--input is for one entry point: name it with --entry_point"),
        ([f"--actual={bundle}", "--picture=nowhere/p.png"], "--picture=nowhere/p.png: no file can be written there"),
        (
            [f"--actual={bundle}", f"--picture={tmp_path / 'p.doc'}"],
            "p.doc: unknown format of a picture '.doc'; available: .png, .svg, .pdf",
        ),
        ([f"--actual={bundle}", "--tolerance=-1"], "--tolerance=-1: -1.0 is not a non-negative number"),
        ([f"--actual={bundle}", "--model=nowhere"], "--model=nowhere: there is no directory"),
        ([f"--actual={bundle}", "--device=vmvx"], "export it with --target=vmvx"),
    ):
        done = comparing(*flags)
        assert done.code == 2, flags
        assert message in done.err, flags
        assert "Traceback" not in done.err
