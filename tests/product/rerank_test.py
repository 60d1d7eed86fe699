"""Rerankers as bundles: scores of pairs of texts, as the eager context computes them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, EagerExecutionContext, InputError, MappingWeights
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import encoder_weights
from tests.product._bundles import export, invoke
from tests.product._rankers import CROSS_ENCODER, write_ranker
from transformer_core.models import entry_points, load_model, weights_of

_DECODER = ENCODER_CASES["qwen3_reranker"]
_DOCUMENTS = ("w5 w9 w66", "w7", "w10 w4 w5 w6")
_TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}w9"


def _logits(case: EncoderCase, model_directory: Path, ids: list[int]) -> float:
    """Returns the logit of one pair alone, without padding, in the eager context."""
    model = load_model(model_directory)
    ctx = EagerExecutionContext(weights_of(model, MappingWeights(encoder_weights(case))))
    (point,) = entry_points(model, sequence=len(ids))
    tokens = np.array([ids], np.int32)
    return float(point(ctx, ctx.constant(tokens), ctx.constant(np.ones_like(tokens)))["logits"].numpy()[0, 0])


def _words(text: str) -> list[int]:
    numbers = {"query": 3}
    return [numbers.get(word, int(word[1:]) if word[1:].isdigit() else 1) for word in text.split()]


def _logistic(logits: list[float]) -> np.ndarray:
    return 1 / (1 + np.exp(-np.array(logits)))


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that takes two pairs of twelve tokens at a time."""
    folder = tmp_path_factory.mktemp("rerank")
    return export(write_ranker(folder / "model"), folder / "bundle", batch=2, sequence=12)


def test_a_cross_encoder(cross: Path) -> None:
    with tapeline.load(cross) as model:
        scores = model.rerank("w8 w4", _DOCUMENTS)
        assert model.pair_tokens("w8 w4", "w7") == 7
        assert model.rerank("w8", ()).shape == (0,)
        with pytest.raises(InputError, match=r"'w7 .*'\.\.\. has 25 tokens, the bundle takes 12: shorten it"):
            model.rerank("w8", [" ".join(["w7"] * 20)])
        rerank: Any = model.rerank
        with pytest.raises(InputError, match=r"`documents`: expected a list of texts; got str \('w7'\): put a single"):
            rerank("w8", "w7")
        with pytest.raises(InputError, match=r"`query`: expected a text; got list"):
            rerank(["w8"], ["w7"])
        with pytest.raises(InputError, match=r"embeds no sentences \(it gives logits\)"):
            model.embed(["w8"])
        calls: list[None] = []
        np.testing.assert_array_equal(model.rerank("w8 w4", _DOCUMENTS, check=lambda: calls.append(None)), scores)
        assert len(calls) == 3 + 2  # three pairs in two calls
    pairs = [[0, 8, 4, 2, 2, *_words(document), 2] for document in _DOCUMENTS]
    expected = _logistic([_logits(CROSS_ENCODER, cross, pair) for pair in pairs])
    np.testing.assert_allclose(scores, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "config.json"),
        ({"activation_fn": "torch.nn.modules.linear.Identity"}, "config_sentence_transformers.json"),
    ],
)
def test_scores_without_a_sigmoid(cross: Path, tmp_path: Path, fields: dict[str, Any], name: str) -> None:
    bundle = _changed(cross, tmp_path, name, fields)
    with tapeline.load(cross) as model, tapeline.load(bundle, verify="off") as other:
        bounded, scores = model.rerank("w8", _DOCUMENTS), other.rerank("w8", _DOCUMENTS)
    np.testing.assert_allclose(_logistic(list(scores)), bounded, atol=1e-6)


def test_an_order_as_json(cross: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = (f"--document={document}" for document in _DOCUMENTS)
    done = invoke("rerank", capsys, f"--bundle={cross}", "--query=w8 w4", *documents, "--format=json")
    ranked = json.loads(done.out)["documents"]
    with tapeline.load(cross) as model:
        scores = model.rerank("w8 w4", _DOCUMENTS)
    assert [entry["document"] for entry in ranked] == [_DOCUMENTS[entry["index"]] for entry in ranked]
    np.testing.assert_array_equal(np.array([entry["score"] for entry in ranked], np.float32), np.sort(scores)[::-1])


def test_an_activation_that_is_not_supported(cross: Path, tmp_path: Path) -> None:
    named = {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Softplus"}
    with (
        tapeline.load(_changed(cross, tmp_path, "config.json", named), verify="off") as model,
        pytest.raises(ConfigError, match=r"name the activation 'torch.*Softplus' of the score; expected one of Sig"),
    ):
        model.rerank("w8", ["w9"])


def _changed(bundle: Path, directory: Path, name: str, fields: dict[str, Any]) -> Path:
    """Returns a bundle of the same files, with other fields in one of them."""
    for file in bundle.iterdir():
        (directory / file.name).symlink_to(file)
    path = directory / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.unlink(missing_ok=True)
    path.write_text(json.dumps({**before, **fields}))
    return directory


def test_a_languagewrite_ranker(tmp_path: Path) -> None:
    model_directory = write_ranker(tmp_path / "model", _DECODER)
    (model_directory / "chat_template.jinja").write_text(_TEMPLATE)
    bundle = export(model_directory, tmp_path / "bundle", batch=2, sequence=12)
    with tapeline.load(bundle) as model:
        scores = model.rerank("w8 w4", _DOCUMENTS)
        (bundle / "chat_template.jinja").unlink()
    prompts = [_words(f"query w8 w4 document {document} w9") for document in _DOCUMENTS]
    np.testing.assert_allclose(scores, _logistic([_logits(_DECODER, bundle, ids) for ids in prompts]), atol=2e-5)
    with tapeline.load(
        bundle, verify="off"
    ) as model:  # the published prompt, of words that this tokenizer does not have
        assert model.pair_tokens("w8", "w9") > 40
    (bundle / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }")
    with (
        tapeline.load(bundle, verify="off") as model,
        pytest.raises(InputError, match=r"chat_template\.jinja: .*template"),
    ):
        model.rerank("w8", ["w9"])


def test_from_a_shell(
    cross: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    with tapeline.load(cross) as model:
        scores = model.rerank("w8 w4", _DOCUMENTS)
    (tmp_path / "lines").write_text("\n".join([*_DOCUMENTS[:2], "", _DOCUMENTS[2]]))
    given = [f"--document={document}" for document in _DOCUMENTS]
    for documents in (given, ["--documents=lines", "--output=scores.npy"]):
        done = invoke("rerank", capsys, f"--bundle={cross}", "--query=w8 w4", *documents)
        assert done.code == 0, done.err
        rows = [line.split(maxsplit=2) for line in done.out.splitlines()]
        order = sorted(range(3), key=lambda i: -scores[i])
        assert [row[2] for row in rows] == [_DOCUMENTS[i] for i in order]
        assert [int(row[1]) for row in rows] == [i + 1 for i in order]
        assert [float(row[0]) for row in rows] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), scores)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give a text with --document, once for each, or a file of them with --documents"),
        (("--document=w9", "--documents=lines"), "give a text with --document, once for each, or a file"),
        (("--documents=none",), r"--documents=.*none: cannot be read: No such file"),
        (("--documents=empty",), "--documents=empty: there is no text in it: write one per line"),
        (("--documents=bytes",), r"--documents=.*bytes: is not UTF-8"),
        ((f"--document={'w7 ' * 20}",), "has 25 tokens, the bundle takes 12"),
    ],
)
def test_bad_input_from_a_shell(
    flags: tuple[str, ...],
    message: str,
    cross: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "bytes").write_bytes(b"\xff")
    done = invoke("rerank", capsys, f"--bundle={cross}", "--query=w8", *flags)
    assert done.code == 2, done.err
    assert re.search(message, done.err), done.err


def test_a_bundle_that_ranks_nothing(tmp_path: Path) -> None:
    case = ENCODER_CASES["roberta_classifier"]
    bundle = export(write_ranker(tmp_path / "model", case), tmp_path / "bundle", sequence=8)
    with (
        tapeline.load(bundle) as model,
        pytest.raises(InputError, match="ranks no texts: export a model ForSequenceCla"),
    ):
        model.rerank("w8", ["w9"])
