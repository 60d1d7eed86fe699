"""Conversations, sound, drafts and verification on JAX: one device and two say what IREE says.

By default sound and drafts run on two devices, with the answers of one from the goldens; with TAPELINE_LONG=1 in the
environment on one device too, and slots of rows beside those of pages.
"""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

import tapeline
from lang_core import VerificationError
from tapeline.compare import TOLERANCE
from tests.goldens.golden_files import read_golden
from tests.goldens.mtp_cases import checkpoint_weights, mtp_case
from tests.goldens.speech.files import read_speech_goldens, sound, write_speech_checkpoint
from tests.product._bundles import Finished, export, invoke

_LONG = bool(os.environ.get("TAPELINE_LONG"))
_PLACES = (None, "tp=2")
# Places of tests that have a golden answer.
_GOLDEN_PLACES = _PLACES if _LONG else _PLACES[1:]


@pytest.fixture
def generating(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Finished]:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))

    def run(bundle: Path, mesh: str | None, *flags: str, lines: str = "") -> Finished:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        cut = [] if mesh is None else [f"--mesh={mesh}"]
        return invoke("generate", capsys, f"--bundle={bundle}", "--backend=jax", *cut, *flags)

    return run


def test_a_conversation_goes_on(generating: Callable[..., Finished], tmp_path: Path) -> None:
    """The second turn's prompt is all that was said."""
    sizes: Any = {"num_layers": 1, "sequence": 8, "max_sequence": 96, "mesh": "tp=2", "target": ()}
    bundle = export("demo", tmp_path / "bundle", **sizes)
    (bundle / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    flags = ["--max_new_tokens=4", "--ignore_eos"]
    answers = [generating(bundle, mesh, "--chat", *flags, lines="It was\n\nthe worst\n") for mesh in _PLACES]
    assert answers[0] == answers[1]
    assert answers[0].code == 0, answers[0].err
    first, second = answers[0].out.split("\n")[:2]
    again = generating(bundle, "tp=2", f"--prompt=It was{first}the worst", *flags)
    assert again.out == f"{second}\n"


def test_speech_is_what_transformers_hears(tmp_path: Path) -> None:
    goldens = read_speech_goldens()
    (tmp_path / "model").mkdir()
    write_speech_checkpoint(tmp_path / "model", goldens["shapes"])
    bundle = export(tmp_path / "model", tmp_path / "bundle", sequence=4, mesh="tp=2", target=())
    for mesh in _GOLDEN_PLACES:
        with tapeline.load(bundle, engine="jax", mesh=mesh) as model:
            heard = model.transcribe(sound("speech"))
        assert heard.text == goldens["cases"]["plain"]["text"]


def test_a_model_drafts_for_itself(generating: Callable[..., Finished], tmp_path: Path) -> None:
    case, golden = mtp_case("qwen3_5"), read_golden("qwen3_5")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(case.config))
    safetensors.numpy.save_file(checkpoint_weights(case), model / "model.safetensors")
    sizes: Any = {"sequence": 8, "max_sequence": len(case.prompt[0]) + 16, "verify_tokens": 4, "target": ()}
    points: Any = {"entry_points": ("prefill", "decode", "verify", "draft"), "mesh": "tp=2"}
    bundle = export(model, tmp_path / "bundle", **sizes, **points)
    ids, stats = ",".join(map(str, case.prompt[0])), tmp_path / "stats.json"
    flags = [f"--token_ids={ids}", "--ignore_eos", "--max_new_tokens=12", f"--stats={stats}", "--speculate=mtp"]
    for mesh in _GOLDEN_PLACES:
        done = generating(bundle, mesh, *flags)
        assert done.code == 0, done.err
        assert [int(token) for token in done.out.split(",")] == golden.tokens[0].tolist()
        assert json.loads(stats.read_text())["head_calls"] > 0


def test_an_export_is_verified_on_its_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: Any = {"num_layers": 1, "sequence": 4, "max_sequence": 16, "target": (), "verify": "jax", "mesh": "tp=2"}
    report = json.loads((export("demo", tmp_path / "bundle", **sizes) / "report.json").read_text())
    rows = {(row["device"], row["entry_point"]) for row in report["verification"]}
    assert rows == {(place, point) for place in ("jax", "jax mesh=tp=2") for point in ("prefill", "decode")}
    monkeypatch.setitem(TOLERANCE, "f32", -1.0)
    with pytest.raises(VerificationError, match=r"device jax, entry point 'prefill', result .* disagrees"):
        export("demo", tmp_path / "other", **sizes)


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param({}, id="rows", marks=pytest.mark.skipif(not _LONG, reason="slots of rows: TAPELINE_LONG=1")),
        pytest.param({"pages": 5, "page_tokens": 16}, id="pages"),
    ],
)
def test_rows_of_slots_are_verified_on_their_mesh(pages: dict[str, int], tmp_path: Path) -> None:
    sizes: Any = {"num_layers": 1, "sequence": 8, "max_sequence": 32, "slots": 2, "target": (), **pages}
    path = export("demo", tmp_path / "bundle", **sizes, verify="jax", mesh="tp=2")
    rows = json.loads((path / "report.json").read_text())["verification"]
    assert {row["entry_point"] for row in rows if row["device"] == "jax mesh=tp=2"} >= {"prefill_row", "decode"}
    assert not [row for row in rows if "skipped" in row]
