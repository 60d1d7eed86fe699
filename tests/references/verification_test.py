"""`export --verify=reference` of the demo model, with what transformers once answered, and with references that fail.

`make_reference_goldens.py` stored the answer. A program that the test writes takes the interpreter's place.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from lang_core import InputError
from tapeline.analysis.inspecting import facts, facts_text
from tapeline.bundle import Bundle
from tapeline.demo import write_demo_checkpoint
from tapeline.reference import CONVERSATIONS, PYTHON_VARIABLE, TEXTS, kind_of, reference_python
from tests.product._bundles import Finished, export, invoke, refused

_DATA: Final = Path(__file__).parent / "data"
_FLAGS: Final = ("--output=bundle", "--target=none", "--verify=reference", "--sequence=8", "--max_sequence=32")
_LOOP: Final = """#!{python}
import json, pathlib, shutil, sys
for line in sys.stdin:
    request = json.loads(line)
    output = pathlib.Path(request["output"])
    {act}
    print("done", flush=True)
"""
_REPLAY: Final = (
    "shutil.copy({folder!r} + '/demo.json', output / 'answer.json'); "
    "shutil.copy({folder!r} + '/demo.npz', output / 'answer.npz')"
)

Exported = Callable[..., Finished]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo model's files, below the folder in which the user stands."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    path = tmp_path / "model"
    path.mkdir()
    write_demo_checkpoint(path)
    return path


@pytest.fixture
def exported(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Exported:
    """Exports the model; ``act`` is what the reference's program does with a request."""

    def run(act: str, *flags: str) -> Finished:
        program = tmp_path / "reference"
        program.write_text(_LOOP.format(python=sys.executable, act=act))
        program.chmod(0o755)
        return invoke("export", capsys, f"--model={model}", f"--reference_python={program}", *_FLAGS, *flags)

    return run


def _answered(tmp_path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], object]) -> str:
    """Returns the act of a reference that gives the stored answer, changed."""
    fields = json.loads((_DATA / "demo.json").read_text())
    with np.load(_DATA / "demo.npz") as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    change(fields, arrays)
    (tmp_path / "demo.json").write_text(json.dumps(fields))
    np.savez(tmp_path / "demo.npz", **arrays)
    return _REPLAY.format(folder=str(tmp_path))


def test_what_agrees_is_reported_side_by_side(exported: Exported, tmp_path: Path) -> None:
    done = exported(_REPLAY.format(folder=str(_DATA)))
    assert (done.code, done.out.strip()) == (0, str(tmp_path / "bundle"))
    assert "transformers 5.23.0: texts: 20 of 20 equal" in done.err
    assert "verified on tokenizer, eager" in done.err
    texts, conversations, logits = json.loads((tmp_path / "bundle" / "report.json").read_text())["verification"]
    assert [row["text"] for row in texts["texts"]] == list(TEXTS)
    assert all(row["ours"] == row["reference"] and row["equal"] for row in texts["texts"])
    assert conversations["refused_by_both"] == len(CONVERSATIONS)  # the demo model has no chat template
    assert (logits["device"], logits["reference"]) == ("eager", "transformers 5.23.0")
    assert logits["positions"] == [7, 15, 20, 21, 22, 23, 24]  # three pieces of 8, the last of 5; four steps
    assert logits["max_rel"] < 1e-5
    assert "eager" in facts_text(facts(Bundle(tmp_path / "bundle"), hashes=False))


def test_the_bundle_on_its_device_is_compared_too(exported: Exported, tmp_path: Path) -> None:
    done = exported(_REPLAY.format(folder=str(_DATA)), "--target=llvm-cpu")
    assert done.code == 0, done.err
    rows = json.loads((tmp_path / "bundle" / "report.json").read_text())["verification"]
    devices = {row["device"]: row for row in rows if "reference" in row}
    assert set(devices) == {"tokenizer", "eager", "local-task"}
    assert devices["local-task"]["positions"] == devices["eager"]["positions"]
    assert devices["local-task"]["max_rel"] < 1e-4


@pytest.mark.parametrize(("field", "value"), [("rope_theta", 20000.0), ("rms_norm_eps", 1e-2), ("hidden_act", "gelu")])
def test_a_wrong_reading_of_the_files_is_found(model: Path, exported: Exported, field: str, value: Any) -> None:
    """The stored answer is of the model as it was: what a wrong reading of a field would give is refused."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, field: value}))
    done = exported(_REPLAY.format(folder=str(_DATA)))
    assert (done.code, done.out) == (3, "")
    assert "(eager) differ from transformers 5.23.0, first at position " in done.err
    assert "max_rel of 2e-04 is allowed" in done.err
    assert not (model.parent / "bundle").exists()


def test_a_tokenizer_that_is_read_otherwise_is_found(model: Path, exported: Exported) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"]["add_prefix_space"] = not tokenizer["pre_tokenizer"]["add_prefix_space"]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    done = exported(_REPLAY.format(folder=str(_DATA)))
    assert (done.code, done.out) == (3, "")
    assert "tokens differ from transformers 5.23.0 in " in done.err
    assert "first, text 1 of 20 ('The quick brown fox jumps over the lazy dog.'): differs at token 1: " in done.err


def test_the_first_position_that_differs_is_named(exported: Exported, tmp_path: Path) -> None:
    def later(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["sequence.0"][3:, 5] += 1.0

    done = exported(_answered(tmp_path, later))
    assert done.code == 3
    assert "differ from transformers 5.23.0, first at position 21: largest error 1 " in done.err


def test_a_conversation_that_only_the_reference_renders_is_found(exported: Exported, tmp_path: Path) -> None:
    def templated(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        fields["conversations"][1] = {"text": "<|begin|>hi", "ids": [0, 5]}

    done = exported(_answered(tmp_path, templated))
    assert done.code == 3
    assert "in 1 of 2 conversations; first, conversation 2 of 2 ('Danke schön 😀'): refused (" in done.err
    assert "the reference gives [0, 5]" in done.err


def test_logits_of_another_vocabulary_are_found(exported: Exported, tmp_path: Path) -> None:
    def narrower(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays["sequence.0"] = arrays["sequence.0"][:, :-1]

    done = exported(_answered(tmp_path, narrower))
    assert done.code == 3
    assert "are of shape [7, 512], those of transformers 5.23.0 of shape [7, 511]" in done.err


_REFUSES: Final = (
    "(output / 'answer.json').write_text(json.dumps(dict(error=dict(kind={kind!r}, message={message!r}))))"
)


def test_a_package_that_is_missing(exported: Exported) -> None:
    done = exported(_REFUSES.format(kind="missing", message="No module named 'torch'"))
    refused(done, "lacks a package (No module named 'torch'): install torch and transformers there, or name the ")


def test_a_model_that_the_reference_does_not_load(exported: Exported, tmp_path: Path) -> None:
    done = exported(_REFUSES.format(kind="load", message="ValueError: no such model"))
    refused(done, "/model (ValueError: no such model), so there is nothing to compare with: choose another --verify")
    assert not (tmp_path / "bundle").exists()


def test_an_interpreter_without_the_packages(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real program, in the interpreter of this test, in which torch is hidden."""
    hidden = model.parent / "hidden"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ImportError('torch is hidden')")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(hidden))
        done = invoke("export", capsys, f"--model={model}", *_FLAGS)
    refused(done, "verify=reference runs transformers in ")
    assert "install torch and transformers there" in done.err


def test_an_interpreter_that_is_not_there(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke("export", capsys, f"--model={model}", "--reference_python=/no/such/python", *_FLAGS)
    refused(done, "reference_python=/no/such/python: cannot be started (No such file or directory): give the Python ")


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("sys.exit('out of luck')", "transformers in {program} ended with status 1; its last words: out of luck"),
        ("(output / 'answer.json').write_text('{}'); open(output / 'answer.npz', 'w')", "is damaged ("),
    ],
)
def test_a_reference_that_dies_or_answers_nonsense(exported: Exported, tmp_path: Path, act: str, message: str) -> None:
    done = exported(act)
    assert (done.code, done.out) == (1, "")
    assert message.format(program=tmp_path / "reference") in done.err


def test_options_that_contradict_each_other(model: Path) -> None:
    for options, message in (
        ({"num_layers": 1}, "verify=reference with num_layers=1: the reference runs every layer"),
        ({"weights": "none"}, "verify=reference compares results, and weights=none gives none"),
        ({"verify": "none", "reference_python": "python"}, "reference_python=python runs verify=reference, and verify"),
    ):
        chosen: Any = {"verify": "reference", "target": (), **options}
        with pytest.raises(InputError, match=message):
            export(model, model.parent / "bundle", **chosen)


def test_the_interpreter_is_that_of_the_option_then_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, "elsewhere")
    assert (reference_python("here"), reference_python(None)) == ("here", "elsewhere")
    monkeypatch.delenv(PYTHON_VARIABLE)
    assert reference_python(None) == sys.executable


def test_a_file_is_run_by_llama_cpp_and_a_directory_by_transformers(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert (kind_of(tmp_path), kind_of(tmp_path / "model.gguf")) == ("transformers", "llama_cpp")
