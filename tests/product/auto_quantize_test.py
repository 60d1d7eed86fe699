"""Encodings chosen by measured loss: exported, converted to GGUF, shown."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import ENCODINGS, EagerExecutionContext, InputError
from tapeline.analysis.inspecting import facts_text
from tapeline.exporting import open_source
from tapeline.quantizing import collect_inputs, read_calibration
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from transformer_core.models import load_model, weights_of
from transformer_core.models.gguf import GgufModel

_TEXT = "The tape tells the whole story. The compiler reads the tape and writes the module. " * 12
_BITS = 6.0


@pytest.fixture(scope="module", name="directory")
def _directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("auto")
    (directory / "text.txt").write_text(_TEXT)
    return directory


@pytest.fixture(scope="module", name="bundle")
def _bundle(directory: Path) -> tapeline.Bundle:
    sizes: dict[str, Any] = {"sequence": 8, "max_sequence": 32, "target": (), "verify": "none", "num_layers": 2}
    options: dict[str, Any] = {"quantize": "auto", "target_bpw": _BITS, "calibration": Path("text.txt")}
    return tapeline.export("demo", "bundle", base=directory, **sizes, **options)


def test_a_bundle_has_the_chosen_encodings_and_its_report_the_losses(bundle: tapeline.Bundle) -> None:
    report = json.loads((bundle.path / "report.json").read_text())
    losses, stored = report["losses"], bundle.config.parameters
    assert report["settings"]["quantize"] == "auto"
    assert {row["path"]: row["encoding"] for row in losses["matrices"]} == {
        path: fields["encoding"] for path, fields in stored.items() if "encoding" in fields
    }
    assert len({row["encoding"] for row in losses["matrices"]}) > 1
    size = sum(np.prod(fields["shape"]) for fields in stored.values() if "encoding" in fields)
    assert size == losses["bytes"] == sum(row["bytes"] for row in losses["layers"])
    assert _BITS - 0.3 < 8 * size / losses["weights"] <= _BITS
    assert losses["predicted_loss"] == pytest.approx(losses["loss"], rel=0.7)
    for row in losses["matrices"]:
        assert row["losses"]["q8_0"] < row["losses"]["q4_0"]
    points = losses["frontier"]
    assert points == sorted(points)
    assert [loss for _, loss in points] == sorted((loss for _, loss in points), reverse=True)
    assert "losses.svg" in bundle.config.sha256
    assert "<svg" in (bundle.path / "losses.svg").read_text()


def test_inspect_shows_the_losses(bundle: tapeline.Bundle) -> None:
    facts = tapeline.inspect_bundle(bundle, hashes=False)
    text = facts_text(facts)
    assert f"encodings by measured loss: {facts['losses']['bits_per_weight']:.3f} bits per weight" in text
    assert "layer 1" in text
    assert "size and loss that can be chosen:" in text


def _divergence(first: np.ndarray, second: np.ndarray) -> float:
    logs = [logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True) for logits in (first, second)]
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1).mean())


def _logits(model: Any, weights: Any, ids: Sequence[int]) -> np.ndarray:
    tokens: Any = np.array([ids], np.int32)
    return model(EagerExecutionContext(weights), tokens).numpy()[0].astype(np.float64)


def test_a_gguf_file_loses_what_was_measured(directory: Path) -> None:
    """The loss is computed again out of the written file, and the limit holds."""
    limit = 0.05
    done = tapeline.convert(
        "demo",
        "auto.gguf",
        to="gguf",
        encoding="auto",
        max_loss=limit,
        calibration="text.txt",
        report="losses.json",
        tokenizer=False,
        base=directory,
    )
    losses = json.loads((directory / "losses.json").read_text())["losses"]
    assert (directory / "losses.svg").is_file()
    with open_source("demo", Path("demo"), True) as source, GgufModel(done.path) as packed:
        assert source.weights is not None
        ids = read_calibration(source.directory, directory / "text.txt", 2048)
        model = load_model(source.directory)
        before = weights_of(model, source.weights)
        rows = [ids[len(ids) - 128 * (row + 1) :][:128] for row in range(2)]
        after = weights_of(model, packed)
        actual = [_divergence(_logits(model, before, row), _logits(model, after, row)) for row in rows]
    assert np.mean(actual) == pytest.approx(losses["loss"], rel=1e-3)
    assert 0 < losses["loss"] <= limit
    assert losses["max_loss"] == limit
    assert len({packed.encoding(key) for key in packed.types_of} - {None}) > 1


def test_inputs_are_those_of_the_matrices(directory: Path) -> None:
    """Mean squares of the first projections are those of the normed embedding; the head's inputs count, too."""
    with open_source("demo", Path("demo"), True) as source:
        assert source.weights is not None
        ids = read_calibration(source.directory, directory / "text.txt", 100)
        model: Any = load_model(source.directory)
        weights = weights_of(model, source.weights)
        head = next(iter(model.tied().values()), "lm_head.weight")
        paths = ["model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight", head]
        inputs = collect_inputs(model, weights, paths, ids, lambda event: None, kept=4)
        table, norm = (weights.read(f"model.{name}.weight") for name in ("embed_tokens", "layers.0.input_layernorm"))
    x = table[ids].astype(np.float64)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + model.config.norm_eps) * norm
    np.testing.assert_allclose(inputs[paths[0]].means, (x**2).mean(axis=0), rtol=1e-4)
    assert [inputs[path].count for path in paths] == [100, 100, 100]
    assert inputs[paths[1]].rows[0].shape == (4, len(inputs[paths[1]].sums))


def test_matrices_that_a_file_has_packed_lose_nothing_as_they_are(directory: Path) -> None:
    tapeline.convert("demo", "q4.gguf", to="gguf", encoding="q4_1", base=directory)
    done = tapeline.convert(
        "q4.gguf",
        "again.gguf",
        to="gguf",
        encoding="auto",
        max_loss=1e-6,
        calibration="text.txt",
        calibration_tokens=80,
        base=directory,
    )
    with GgufModel(directory / "q4.gguf") as first, GgufModel(done.path) as second:
        for key in first.types_of:
            assert first.types_of[key] == second.types_of[key]
            if first.encoding(key) in ENCODINGS:
                np.testing.assert_array_equal(first.read_packed(key), second.read_packed(key))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_bpw": 4.5}, "target_bpw=4.5: is a limit of encodings chosen by loss: give quantize=auto too"),
        ({"quantize": "q8_0", "max_loss": 0.1}, "max_loss=0.1: is a limit of encodings chosen by loss"),
        ({"quantize": "auto", "max_loss": 0.1, "target_bpw": 5}, "target_bpw=5 with max_loss=0.1: give one of them"),
        ({"quantize": "auto", "max_loss": 0}, "max_loss=0: expected a number above 0 and below 100"),
        ({"quantize": "auto", "target_bpw": float("nan")}, "target_bpw=nan: expected a number above 0 and below 100"),
        ({"quantize": "auto", "weights": "none", "verify": "none"}, "quantize=auto measures weights, and weights=none"),
        ({"calibration": Path("text.txt")}, "calibration=.*text.txt: is the text of quantize=auto: give it too"),
        ({"quantize": "auto", "calibration": Path("no.txt")}, r"calibration=.*no.txt: cannot be read as text"),
        (
            {"quantize": "auto", "target_bpw": 1, "calibration": Path("text.txt")},
            "target_bpw=1: the smallest encodings",
        ),
    ],
)
def test_limits_that_do_not_fit_are_refused(options: dict[str, Any], message: str, directory: Path) -> None:
    with pytest.raises(InputError, match=message):
        tapeline.export("demo", "refused", base=directory, num_layers=1, target=(), **options)
    assert not (directory / "refused").exists()


def test_models_that_predict_no_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES["llama_gqa"])
    with pytest.raises(InputError, match=r"quantize=auto: measures loss over a text, and .* has no tokenizer"):
        tapeline.export(tmp_path / "model", tmp_path / "bundle", quantize="auto", target=())
    with pytest.raises(InputError, match=r"quantize=auto measures weights, and `dry_run` reads none"):
        tapeline.predict_export("demo", tmp_path / "bundle", quantize="auto", target=())
    with pytest.raises(InputError, match=r"imatrix=.*: encoding=auto measures importance itself: leave it out"):
        tapeline.convert("demo", tmp_path / "a.gguf", to="gguf", encoding="auto", imatrix="b.gguf")
