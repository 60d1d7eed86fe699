import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext
from transformer_core.family._sentence import DenseActivation, DenseConfig, ScoreTokens
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
        (
            [{"type": "x.Transformer"}, {"type": "sentence_transformers.models.Pooling", "path": "2_Pooling"}],
            None,
            "Pooling: expected path '1_Pooling'; found '2_Pooling'",
        ),
        (
            [{"type": "x.Transformer"}, {"type": "sentence_transformers.models.Pooling", "path": "../up"}],
            None,
            r"module Pooling: expected a path below .*; found '\.\./up'",
        ),
        ([{"type": "sentence_transformers.models.Transformer", "path": "/etc"}], None, "expected a path below"),
        ([{"type": "x.Transformer"}, {"type": "custom.Pooling"}], None, "module 1 is a custom.Pooling, code of the mo"),
        ((), None, r"found none$"),
        (("Transformer",), None, r"expected the modules Transformer, Pooling and perhaps .*; found Transformer$"),
        *(
            (kinds, None, rf"found {', '.join(kinds)}: the module {refused} is not supported")
            for refused, kinds in {
                "LogitScore": ("Transformer", "LogitScore", "Pooling"),
                "StaticEmbedding": ("StaticEmbedding",),
                "WordEmbeddings": ("WordEmbeddings", "Pooling"),
                "WordWeights": ("Transformer", "WordWeights", "Pooling"),
                "CNN": ("WordEmbeddings", "CNN", "Pooling"),
                "LSTM": ("Transformer", "LSTM", "Pooling"),
                "BoW": ("BoW", "Dense"),
                "CLIPModel": ("CLIPModel",),
                "Router": ("Router",),
                "Asym": ("Transformer", "Pooling", "Asym"),
                "WeightedLayerPooling": ("Transformer", "WeightedLayerPooling", "Pooling"),
                "SpladePooling": ("MLMTransformer", "SpladePooling"),
            }.items()
            for refused in [next(kind for kind in kinds if kind not in KINDS and kind != "Dense")]
        ),
        (KINDS, {"include_prompt": 0}, r"'include_prompt': expected true or false; found 0"),
        (KINDS, None, r"1_Pooling/config\.json: no such file: modules\.json names a module Pooling"),
        (KINDS, [], r"1_Pooling/config\.json: expected a JSON object; found list"),
        (KINDS, {"pooling_mode_max_tokens": 1}, r"'pooling_mode_max_tokens': expected true or false; found 1"),
        (KINDS, {"pooling_mode": "attention"}, r"'pooling_mode': expected one or a list of mean, cls, max.*attention"),
        (KINDS, {"pooling_mode": ["mean", 3]}, r"'pooling_mode': expected one or a list of mean, cls, max"),
        (KINDS, {"pooling_mode": []}, r"'pooling_mode': expected one or a list of mean, cls, max.*found \[\]"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path, modules, pooling, message):
    write(tmp_path, modules, pooling)
    with pytest.raises(ConfigError, match=message):
        read_pooling(tmp_path)


@pytest.mark.parametrize("kind", ["CrossEncoder", "SparseEncoder", "MultiVectorEncoder"])
def test_a_model_of_another_type_is_refused(tmp_path, kind):
    write(tmp_path, pooling={})
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ConfigError, match=rf"'model_type': expected one of SentenceTransformer.*found '{kind}'"):
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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "BertModel"),
        ({"architectures": ["BertForPreTraining"], "model_type": "bert"}, "BertModel"),
        ({"architectures": None, "model_type": "bert"}, "BertModel"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}}, "BertModel"),
        ({"architectures": ["RobertaForMaskedLM"], "max_position_embeddings": 20}, "RobertaModel"),
        ({"architectures": ["XLMRobertaForSequenceClassification"], "max_position_embeddings": 20}, "XLMRobertaModel"),
        ({"architectures": ["MPNetForMaskedLM"], "max_position_embeddings": 20}, "MPNetModel"),
    ],
)
def test_the_layers_count_and_not_the_head(tmp_path, fields, expected):
    """sentence-transformers loads the model without a head, whatever head the architecture names."""
    (tmp_path / "config.json").write_text(json.dumps({**BERT, **fields}))
    write(tmp_path, pooling={"pooling_mode_cls_token": True})
    model = load_model(tmp_path)
    assert model.config.architecture == expected
    assert model.config.facts()["pooling"] == {"mode": "cls", "normalize": True}


QWEN3 = {
    **{name: BERT[name] for name in BERT if name != "max_position_embeddings"},
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 4,
    "max_position_embeddings": 32,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
}


def dense(directory: Path, place: int, **fields: Any) -> None:
    (directory / f"{place}_Dense").mkdir()
    (directory / f"{place}_Dense" / "config.json").write_text(json.dumps(fields))


def test_matrices_after_the_pooling(tmp_path):
    write(tmp_path, (*KINDS[:2], "Dense", "Dense", "Normalize"), {"word_embedding_dimension": 12})
    dense(tmp_path, 2, in_features=12, out_features=5)
    dense(
        tmp_path, 3, in_features=5, out_features=7, bias=False, activation_function="torch.nn.modules.linear.Identity"
    )
    pooling = read_pooling(tmp_path)
    assert pooling is not None
    assert pooling.normalize
    kinds = DenseActivation
    assert pooling.stages == (
        DenseConfig(2, 12, 5, True, kinds.TANH),
        DenseConfig(3, 5, 7, False, kinds.IDENTITY),
    )
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    parameters = dict(load_model(tmp_path).named_parameters())
    assert parameters["sentence.dense.3.weight"].spec.shape == (7, 5)
    assert "sentence.dense.3.bias" not in parameters


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"in_features": 13, "out_features": 5}, "2_Dense takes vectors of 13 numbers, and those before it have 12"),
        ({"out_features": 5}, r"2_Dense/config\.json: field 'in_features' is missing"),
        ({"in_features": 12, "out_features": 5, "use_residual": 1}, "'use_residual': expected true or false; found 1"),
        ({"in_features": 12, "out_features": 5, "module_input_name": "x"}, "'module_input_name': expected one of sent"),
        ({"in_features": 12, "out_features": 5, "activation_function": "a.Gelu"}, "'activation_function': expected on"),
    ],
)
def test_matrices_that_are_not_supported(tmp_path, fields, message):
    write(tmp_path, (*KINDS[:2], "Dense"), {"word_embedding_dimension": 12})
    dense(tmp_path, 2, **fields)
    with pytest.raises(ConfigError, match=message):
        read_pooling(tmp_path)


def test_a_matrix_without_its_file(tmp_path):
    write(tmp_path, (*KINDS[:2], "Dense"), {})
    with pytest.raises(ConfigError, match=r"2_Dense/config\.json: no such file: modules\.json names a module Dense"):
        read_pooling(tmp_path)


def test_the_last_token():
    x = np.random.default_rng(2).standard_normal((3, 4, 5)).astype(np.float32)
    rows = [x[row, MASK[row].sum() - 1] for row in range(3)]
    np.testing.assert_array_equal(embedded(PoolingMode.LAST, False, x), rows)


def test_a_language_model_that_embeds_sentences(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    assert load_model(tmp_path).config.architecture == "Qwen3ForCausalLM"
    write(tmp_path, pooling={"pooling_mode_lasttoken": True})
    model = load_model(tmp_path)
    assert model.config.architecture == "Qwen3Model"
    assert model.config.facts()["pooling"] == {"mode": "lasttoken", "normalize": True}
    (tmp_path / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 16}')
    with pytest.raises(ConfigError, match=r"says vectors of 16 numbers, and config\.json hidden_size 12: fetch both"):
        load_model(tmp_path)


def test_a_language_model_that_ranks(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    write(tmp_path, ("Transformer", "LogitScore"))
    with pytest.raises(ConfigError, match=r"1_LogitScore/config\.json: no such file: modules\.json names a module Log"):
        load_model(tmp_path)
    (tmp_path / "1_LogitScore").mkdir()
    for fields, message in (
        ({"true_token_id": 31}, r"names token 31, and config\.json a vocabulary of 31: fetch both again"),
        ({"false_token_id": 3}, "field 'true_token_id' is missing"),
        ({"true_token_id": 3, "module_input_name": "x"}, "'module_input_name': expected one of causal_logits"),
    ):
        (tmp_path / "1_LogitScore" / "config.json").write_text(json.dumps(fields))
        with pytest.raises(ConfigError, match=message):
            load_model(tmp_path)
    (tmp_path / "1_LogitScore" / "config.json").write_text('{"true_token_id": 3}')
    model = load_model(tmp_path)
    assert (model.config.facts()["labels"], model.config.score) == (1, ScoreTokens(3))


def test_a_language_model_that_cannot(tmp_path):
    sizes = {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": 31}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "architectures": ["GPT2LMHeadModel"]}))
    write(tmp_path, pooling={})
    with pytest.raises(
        ConfigError,
        match=r"GPT2LMHeadModel embeds no sentences, .*: expected a model_type of .*bert.*; found 'gpt2'",
    ):
        load_model(tmp_path)
