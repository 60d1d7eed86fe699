"""Tiny models of sentence-transformers from their directory to vectors on a device, at every length of their bundle."""

import json
from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError
from tests.goldens.samples import LONG
from tests.goldens.sentences.cases import PAIRS, SENTENCE_CASES, TEXTS, read_vectors, write_sentence_model
from tests.product._bundles import export, invoke

_FEW = ("modernbert", "old_layout")
_MORE = tuple(name for name, case in SENTENCE_CASES.items() if not case.ranks and name not in _FEW)
_MANY = [*_FEW, *(pytest.param(name, marks=pytest.mark.skipif(not LONG, reason="TAPELINE_LONG=1")) for name in _MORE)]


def _bundle(name: str, folder: Path) -> Path:
    (folder / "model").mkdir()
    write_sentence_model(folder / "model", SENTENCE_CASES[name])
    return export(folder / "model", folder / "bundle")


@pytest.mark.parametrize("name", _MANY)
def test_vectors_of_a_bundle_are_those_of_sentence_transformers(name: str, tmp_path: Path) -> None:
    bundle = _bundle(name, tmp_path)
    with tapeline.load(bundle, engine="eager") as model:
        eager = model.embed(TEXTS, prompt_name=SENTENCE_CASES[name].prompt)
    np.testing.assert_allclose(eager, read_vectors(name), atol=5e-5, rtol=5e-5)
    with tapeline.load(bundle) as model:
        vectors = model.embed(TEXTS, prompt_name=SENTENCE_CASES[name].prompt)
        _check_bits(model, name, vectors)
        files = SENTENCE_CASES[name].files.get("config_sentence_transformers.json", {})
        assert model.similarity == files.get("similarity_fn_name", "cosine")
    np.testing.assert_allclose(vectors, read_vectors(name), atol=5e-5, rtol=5e-5)
    assert (vectors.truncated > 0).sum() >= 1


def _check_bits(model: tapeline.LoadedModel, name: str, vectors: np.ndarray) -> None:
    """Checks that a text has the bits that it has alone, in any company; within rounding if 4 does not divide T."""
    prompt = SENTENCE_CASES[name].prompt
    alone = np.concatenate([model.embed([text], prompt_name=prompt) for text in TEXTS])
    forward = model.bundle.entry_point("forward")
    tolerance = 2e-6 if forward.arguments[0].spec.shape[1] % 4 else 0
    np.testing.assert_allclose(vectors, alone, rtol=0, atol=tolerance)
    for seed in range(4):
        drawn = np.random.default_rng(seed).integers(0, len(TEXTS), 5 + 20 * seed).tolist()
        together = model.embed([TEXTS[text] for text in drawn], prompt_name=prompt)
        np.testing.assert_allclose(together, alone[drawn], rtol=0, atol=tolerance)


def test_a_bundle_that_ranks(tmp_path: Path) -> None:
    with tapeline.load(_bundle("rerank_new", tmp_path)) as model:
        scores = [model.rerank(query, [document]) for query, document in PAIRS]
    np.testing.assert_allclose(np.concatenate(scores), read_vectors("rerank_new"), atol=5e-5)
    assert [int(score.truncated[0]) > 0 for score in scores] == [False, False, True, True, True, False]


def test_truncation_from_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = _bundle("lower_case", tmp_path)
    texts = [f"--text={text}" for text in ("berlin", "Berlin is " * 20, "big " * 30)]
    done = invoke("embed", capsys, f"--bundle={bundle}", *texts, "--format=json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["tokens"] == [3, 20, 20]
    assert document["truncated"] == [0, 22, 12]
    assert "warning: 'Berlin is Berlin is " in done.err
    assert "longer than the 20 tokens that the model reads: 22 were cut off, and 1 more (--notruncate" in done.err
    refused = invoke("embed", capsys, f"--bundle={bundle}", *texts, "--notruncate")
    assert refused.code == 2
    assert "has 42 tokens, the model reads 20: shorten it" in refused.err


def test_modules_that_are_not_supported_are_named(tmp_path: Path) -> None:
    write_sentence_model(tmp_path, SENTENCE_CASES["minilm"])
    (tmp_path / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}])
    )
    with pytest.raises(ConfigError, match=r"modules\.json: .*the module StaticEmbedding is not supported"):
        tapeline.export(tmp_path, tmp_path / "bundle")
