import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext
from transformer_core.models import Pooling, PoolingMode, load_model, read_pooling

CTX = EagerExecutionContext()
KINDS = ("Transformer", "Pooling", "Normalize")
BERT = {
    "architectures": ["BertModel"],
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 31,
}
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], np.int32)


def write(directory: Path, modules: Any = KINDS, pooling: Any = None) -> Path:
    if modules is KINDS or isinstance(modules, tuple):
        modules = [{"idx": i, "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(modules)]
    (directory / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return directory


def embedded(mode: PoolingMode, normalize: bool, x: np.ndarray) -> np.ndarray:
    return Pooling(mode, normalize)(CTX, CTX.constant(x), CTX.constant(MASK)).numpy()


def test_what_is_padding_does_not_count():
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    rows = [x[row, : MASK[row].sum()] for row in range(3)]
    np.testing.assert_allclose(embedded(PoolingMode.MEAN, False, x), [row.mean(0) for row in rows], rtol=1e-6)
    np.testing.assert_array_equal(embedded(PoolingMode.MAX, False, x), [row.max(0) for row in rows])
    np.testing.assert_array_equal(embedded(PoolingMode.CLS, False, x), x[:, 0])
    wild = np.where(MASK[..., None] == 0, np.float32("nan"), x)
    np.testing.assert_array_equal(embedded(PoolingMode.MEAN, True, wild), embedded(PoolingMode.MEAN, True, x))


def test_vectors_of_length_one():
    x = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    for mode in PoolingMode:
        plain = embedded(mode, False, x)
        lengths = np.linalg.norm(plain, axis=-1, keepdims=True)
        np.testing.assert_allclose(embedded(mode, True, x), plain / lengths, rtol=1e-6)
    assert not embedded(PoolingMode.MEAN, True, np.zeros((3, 4, 5), np.float32)).any()


def test_files(tmp_path):
    assert read_pooling(tmp_path) is None
    write(tmp_path, pooling={"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True})
    assert read_pooling(tmp_path) == Pooling(PoolingMode.MAX, True)
    write(tmp_path, KINDS[:2])
    assert read_pooling(tmp_path) == Pooling(PoolingMode.MAX, False)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert read_pooling(tmp_path) == Pooling(PoolingMode.CLS, False)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean", "embedding_dimension": 12}')
    assert read_pooling(tmp_path) == Pooling(PoolingMode.MEAN, False, 12)
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")  # as sentence-transformers reads it
    assert read_pooling(tmp_path) == Pooling(PoolingMode.MEAN, False)


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        ({}, None, r"modules\.json: expected a JSON array; found dict"),
        ([1], None, r"modules\.json: expected objects with a field 'type'; found 1"),
        ((*KINDS, "Dense"), None, r"expected the modules Transformer, Pooling .*; found Transformer, .*, Dense"),
        ([{"type": "a.Pooling", "path": "2_Pooling"}], None, "Pooling: expected path '1_Pooling'; found '2_Pooling'"),
        ((), None, r"found none: others are not supported"),
        (KINDS, None, r"1_Pooling/config\.json: no such file: modules\.json names a module Pooling"),
        (KINDS, [], r"1_Pooling/config\.json: expected a JSON object; found list"),
        (
            KINDS,
            {"pooling_mode_lasttoken": True},
            r"'pooling_mode_lasttoken': expected false: supported are .*; found T",
        ),
        (
            KINDS,
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            r"'pooling_mode_mean_tokens': expected false, for pooling_mode_cls_token is true: several modes",
        ),
        (KINDS, {"pooling_mode_max_tokens": 1}, r"'pooling_mode_max_tokens': expected true or false; found 1"),
        (KINDS, {"pooling_mode": "weightedmean"}, r"'pooling_mode': expected one of mean, cls, max.*weightedmean"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path, modules, pooling, message):
    write(tmp_path, modules, pooling)
    with pytest.raises(ConfigError, match=message):
        read_pooling(tmp_path)


def test_a_model_that_embeds_sentences(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    assert "pooler.weight" in dict(load_model(tmp_path).named_parameters())
    write(tmp_path, pooling={"pooling_mode_cls_token": True})
    model = load_model(tmp_path)
    assert model.config.facts()["pooling"] == {"mode": "cls", "normalize": True}
    assert "pooler.weight" not in dict(model.named_parameters())


def test_a_pooling_of_another_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    write(tmp_path, pooling={"word_embedding_dimension": 384})
    with pytest.raises(ConfigError, match=r"says vectors of 384 numbers, and config\.json hidden_size 12: fetch both"):
        load_model(tmp_path)


def test_a_model_that_cannot(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**BERT, "architectures": ["BertForMaskedLM"]}))
    write(tmp_path, pooling={"pooling_mode_cls_token": True})
    with pytest.raises(ConfigError, match=r"BertForMaskedLM embeds no sentences, and modules\.json .* remove that"):
        load_model(tmp_path)
