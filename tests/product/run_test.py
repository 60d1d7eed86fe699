"""tools:run on arrays."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from runtime.dump import read_dump
from tapeline.bundle import Bundle
from tapeline.command import load_command
from tests.goldens.cases import CASES
from tests.product._bundles import Finished, export_case, invoke

Run = Callable[..., Finished]
_CASE = CASES["llama_gqa"]
_T, _S = 3, 7
_CACHE = (1, 3, _S, 8)
_NAMES = ("layers.0.key_cache", "layers.0.value_cache")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer in bf16, a dtype that NumPy's files cannot name."""
    folder = tmp_path_factory.mktemp("run")
    return export_case(_CASE, folder, num_layers=1, dtype="bf16", sequence=_T, max_sequence=_S)


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """Files for prefill."""
    cache = np.random.default_rng(1).standard_normal(_CACHE).astype(ml_dtypes.bfloat16)
    arrays = {
        "token_ids": np.array([[5, 100, 0]], np.int32),
        "position": np.array(2, np.int32),
        "last": np.array(1, np.int32),
        _NAMES[0]: cache.view("V2"),
        _NAMES[1]: cache[:, ::-1].view("V2"),
    }
    paths = {name: tmp_path / f"in.{name}.npy" for name in arrays}
    for name, array in arrays.items():
        np.save(paths[name], array)
    return paths


@pytest.fixture
def running(
    bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Path]], Finished]:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))

    def run(inputs: dict[str, Path], *more: str) -> Finished:
        flags = [f"--input={name}={os.path.relpath(path, tmp_path)}" for name, path in inputs.items()]
        common = (f"--bundle={bundle}", "--entry_point=prefill", "--output_dir=results")
        return invoke("run", capsys, *common, *flags, *more)

    return run


def test_every_flag_of_the_contract_is_there() -> None:
    ours = set(load_command("run").FLAGS)
    placed = {"device", "backend", "mesh", "checkpoint", "verify_files", "trust_compiled"}
    assert ours == {
        "bundle",
        "entry_point",
        "input",
        "output_dir",
        *placed,
        "dump",
        "dump_level",
        "dump_limit",
        "format",
    }


def test_a_dump_of_one_call(running: Run, inputs: dict[str, Path], tmp_path: Path) -> None:
    done = running(inputs, "--dump=dump", "--dump_level=2")
    assert done.code == 0
    dump = read_dump(tmp_path / "dump")
    assert {(record.step, record.entry_point) for record in dump.records} == {(0, "prefill")}
    given = {record.name: dump.load(record) for record in dump.records if record.when == "before"}
    assert set(given) == set(inputs)
    np.testing.assert_array_equal(given["token_ids"], np.load(inputs["token_ids"]))
    (logits,) = [dump.load(record) for record in dump.records if (record.name, record.direction) == ("logits", "OUT")]
    np.testing.assert_array_equal(logits, np.load(tmp_path / "results" / "logits.npy"))


def test_results_land_under_their_names(running: Run, inputs: dict[str, Path], tmp_path: Path, bundle: Path) -> None:
    done = running(inputs)
    assert (done.code, done.err) == (0, "")
    names = ("logits", *_NAMES, "next_ids")
    assert done.out.splitlines() == [str(tmp_path / "results" / f"{name}.npy") for name in names]
    logits = np.load(tmp_path / "results" / "logits.npy")
    assert (logits.shape, logits.dtype) == ((1, 101), np.float32)
    before = np.load(inputs[_NAMES[0]])
    after = np.load(tmp_path / "results" / f"{_NAMES[0]}.npy")
    assert after.shape == _CACHE
    assert (after[:, :, :2] == before[:, :, :2]).all()  # positions 2 .. 4 are written
    assert (after[:, :, 2:5] != before[:, :, 2:5]).any()
    with Bundle(bundle).session("local-task") as session:
        arrays = [np.load(path) for path in inputs.values()]
        caches = [array.view(ml_dtypes.bfloat16) for array in arrays[3:]]
        expected = session.function("prefill")(arrays[0], 2, 1, *caches)[0].numpy()
    np.testing.assert_array_equal(logits, expected)
    again = running({**inputs, **{name: tmp_path / "results" / f"{name}.npy" for name in _NAMES}})
    assert again.code == 0  # what one run wrote, the next one reads


def _refused(done: Finished, message: str, tmp_path: Path) -> None:
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--input=token_idz=x.npy"], "'prefill' has no argument 'token_idz'; did you mean 'token_ids'?"),
        (["--input=last=x.npy"], "--input=last=x.npy: 'last' is given twice"),
        (["--input=last"], "--input=last: expected NAME=FILE.npy; the arguments are token_ids, position, last"),
        (["--input=last="], "expected NAME=FILE.npy"),
        (["--entry_point=prefil"], "has no entry point 'prefil'; available: prefill, decode; did you mean 'prefill'?"),
        (["--bundle=."], "is not a bundle: it has no kernel_config.json: export one first"),
        (["--device=local-tusk"], "--device=local-tusk: value should be one of <local-task|local-sync|vmvx"),
        (["--device=vmvx"], "was compiled for llvm-cpu: export it with --target=vmvx"),
        (["stray"], "unexpected arguments stray"),
    ],
)
def test_wrong_flags(running: Run, inputs: dict[str, Path], tmp_path: Path, more: list[str], message: str) -> None:
    _refused(running(inputs, *more), message, tmp_path)


def test_missing_inputs(running: Run, inputs: dict[str, Path], tmp_path: Path) -> None:
    del inputs["last"], inputs[_NAMES[1]]
    _refused(running(inputs), "'prefill': --input is missing for last, layers.0.value_cache", tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("token_ids", np.zeros((1, _T), np.int64), "found int64[1, 3], 'token_ids' is i32[1,3]"),
        ("token_ids", np.zeros((1, _T + 1), np.int32), "found int32[1, 4], 'token_ids' is i32[1,3]"),
        ("token_ids", np.zeros((1, _T), ">i4"), "found >i4[1, 3], 'token_ids' is i32[1,3]"),
        ("position", np.zeros(1, np.int32), "found int32[1], 'position' is i32[]"),
        (_NAMES[0], np.zeros(_CACHE, np.float32), "is bf16[1,3,7,8]"),
        ("position", np.array([{}], object), "not a .npy file: "),
        ("position", np.array(5, np.int32), "'prefill': argument 'position': expected 0 to 4; found 5"),
        ("last", np.array(-1, np.int32), "'prefill': argument 'last': expected 0 to 2; found -1"),
    ],
)
def test_arrays_that_do_not_fit(
    running: Run, inputs: dict[str, Path], tmp_path: Path, name: str, array: np.ndarray, message: str
) -> None:
    np.save(inputs[name], array, allow_pickle=True)
    _refused(running(inputs), message, tmp_path)


class _Boom:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, ("boom",)


@pytest.mark.parametrize("kind", ["absent", "empty", "text", "cut_off", "pickle", "archive", "folder", "endless"])
def test_files_that_are_no_array(
    running: Run, inputs: dict[str, Path], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = inputs["token_ids"]
    data = path.read_bytes()
    path.unlink()
    if kind == "archive":
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(3))
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.write_bytes(data.replace(b"(1, 3), }" + b" " * 12, b"(9999999999999, 3), }"))
    elif kind != "absent":
        path.write_bytes(
            {"empty": b"", "text": b"1, 2, 3\n", "cut_off": data[:-4], "pickle": pickle.dumps(_Boom())}[kind]
        )
    words = {"absent": "no such file", "archive": "an archive of arrays; expected a single .npy array"}
    _refused(running(inputs), words.get(kind, "not a .npy file: "), tmp_path)
    assert path.name in running(inputs).err
    assert not (tmp_path / "boom").exists()


def test_results_that_cannot_be_written(running: Run, inputs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    done = running(inputs)
    assert done.code == 2
    assert "--output_dir" in done.err
    assert "cannot be written: File exists" in done.err


def test_token_ids_outside_of_the_vocabulary_are_the_nearest_inside(
    running: Run, inputs: dict[str, Path], tmp_path: Path
) -> None:
    logits_of_runs = []
    for ids in ([-5, 101, 2**31 - 1], [0, 100, 100]):
        np.save(inputs["token_ids"], np.array([ids], np.int32))
        assert running(inputs).code == 0
        logits_of_runs.append(np.load(tmp_path / "results" / "logits.npy"))
    np.testing.assert_array_equal(*logits_of_runs)
