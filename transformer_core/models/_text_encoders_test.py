"""Configurations of BERT's successors: what is read, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, MappingWeights
from transformer_core._config_fields import ConfigFields
from transformer_core.family._registry import family_in
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_scaling import LinearScaling
from transformer_core.models import load_model, stored_specs
from transformer_core.models.encoders import T5Config, TextConfig, TextModel

SIZES = {
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 31,
}


def read(architecture: str, **changes: Any) -> TextConfig:
    fields = ConfigFields({"architectures": [architecture], **SIZES, **changes}, "dir/config.json")
    return family_in(fields).read(fields)


def test_what_is_not_said_is_as_transformers_has_it():
    roberta, mpnet = read("RobertaModel"), read("MPNetModel")
    assert (roberta.padding, roberta.positions, roberta.types) == (1, 7, 2)
    assert (mpnet.padding, mpnet.positions, mpnet.types, mpnet.relative_rows) == (1, 7, 0, 32)
    assert (roberta.stack.norm_eps, roberta.stack.activation) == (1e-12, Activation.GELU)
    assert read("XLMRobertaModel", pad_token_id=0).positions == 8
    assert read("MPNetModel", pad_token_id=0).positions == 7
    assert read("RobertaForSequenceClassification").labels == 2


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("RobertaModel", {"is_decoder": True}, "field 'is_decoder': expected false, or no such field; found True"),
        ("RobertaModel", {"max_position_embeddings": 2}, "'max_position_embeddings': expected 3 at least, for posi"),
        ("RobertaModel", {"pad_token_id": -1}, "'pad_token_id': expected an integer of at least 0; found -1"),
        ("XLMRobertaModel", {"position_embedding_type": "relative_key"}, "'position_embedding_type': expected one of"),
        ("MPNetModel", {"relative_attention_num_buckets": 16}, "'relative_attention_num_buckets': expected an integ"),
        ("MPNetModel", {"num_attention_heads": 5}, r"'hidden_size': expected a multiple of num_attention_heads \(5\)"),
        ("RobertaForMultipleChoice", {}, "'architectures': 'RobertaForMultipleChoice' is not supported"),
    ],
)
def test_what_is_not_supported_is_refused(architecture: str, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(architecture, **changes)


MODERNBERT = {"layer_types": ["full_attention", "sliding_attention"], "local_attention": 7}
NOMIC = {"activation_function": "swiglu", "n_embd": 12, "n_head": 3, "n_inner": 20, "n_layer": 2, "n_positions": 9}


def test_modernbert_in_both_forms():
    new = read("ModernBertModel", global_attn_every_n_layers=2, rope_parameters={"full_attention": {"rope_theta": 5e4}})
    old = read("ModernBertModel", **MODERNBERT, global_rope_theta=5e4)
    assert new.stack.rope == old.stack.rope != read("ModernBertModel").stack.rope
    for config, distance in ((new, 64), (old, 3)):
        local = config.stack.local
        assert local is not None
        assert (local.layers, local.distance, local.rope.base) == ({1}, distance, 1e4)


def test_nomic_bert_in_both_forms():
    sizes = {name: None for name in SIZES if name != "vocab_size"}
    old = read("NomicBertModel", **sizes, **NOMIC, layer_norm_epsilon=1e-3, rotary_emb_base=500, num_experts=0)
    new = read("NomicBertModel", layer_norm_eps=1e-3, rope_theta=500.0)
    assert old == new != read("NomicBertModel")


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_every_n_layers": 2}


def test_nomic_bert_with_experts_has_biases_and_no_gates():
    stack = read("NomicBertModel", **EXPERTS).stack
    assert stack.experts is not None
    assert (stack.experts.layers, stack.experts.routing.normalized) == ({1}, False)
    assert (stack.gated_mlp, stack.mlp_bias, stack.qkv_bias, stack.output_bias) == (False, True, True, True)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("NomicBertModel", {"num_experts": 4}, "field 'moe_every_n_layers' is missing"),
        (
            "NomicBertModel",
            {**EXPERTS, "moe_every_n_layers": 1},
            "'moe_every_n_layers': expected an integer of at leas",
        ),
        (
            "NomicBertModel",
            {**EXPERTS, "num_experts_per_tok": 5},
            "routing: expected 1 to 4 experts per token; found 5",
        ),
        ("ModernBertModel", {"layer_types": ["full_attention", "linear"]}, "'layer_types': expected a list of 2"),
        ("ModernBertModel", {"num_attention_heads": 5}, r"'hidden_size': expected a multiple of num_attention_heads"),
        (
            "ModernBertModel",
            {"rope_parameters": {"full_attention": 3}},
            "'full_attention': expected an object; found 3",
        ),
        ("ModernBertForSequenceClassification", {"classifier_pooling": "max"}, "'classifier_pooling': expected one of"),
        ("NomicBertModel", {**NOMIC, "num_experts": 8}, "'num_experts': expected 0, or no such field; found 8"),
        ("NomicBertModel", {**NOMIC, "prenorm": True}, "'prenorm': expected False, or no such field; found True"),
        ("NomicBertModel", {"num_attention_heads": 5}, "'hidden_size': expected a multiple of .* or a field head_dim"),
    ],
)
def test_what_is_not_supported_of_these_is_refused(architecture: str, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(architecture, **changes)


NTK = {"type": "ntk", "factor": 8.0}


def test_published_gte_has_the_frequencies_that_its_authors_compute():
    """Formula of ``NTKScalingRotaryEmbedding`` in vLLM, without ``mixed_b``."""
    rope = read("NewModel", hidden_size=24, rope_theta=20000, rope_scaling=NTK).stack.rope
    assert rope is not None
    assert isinstance(rope.scaling, LinearScaling)
    assert (rope.rotated, rope.base) == (8, 160000.0)
    assert rope.scaling.factor == pytest.approx(8.0 ** (2 / 8))
    plain = read("NewModel", hidden_size=24).stack.rope
    assert plain is not None
    assert plain.base == 10000.0
    assert read("GteModel", hidden_size=24).stack.rope == replace(plain, base=160000.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {**NTK, "mixed_b": 0.5}}, "'mixed_b': expected null, or no such field; found 0.5"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'type': expected .*ntk; found 'linear'"),
        ({"rope_scaling": {"type": "ntk", "factor": 1.0}}, "'factor': expected a finite number above 1; found 1.0"),
        ({"position_embedding_type": "absolute"}, "'position_embedding_type': expected 'rope', or no such field"),
        ({"layer_norm_type": "rms_norm"}, "'layer_norm_type': expected 'layer_norm', or no such field"),
        ({"logn_attention_scale": True}, "'logn_attention_scale': expected False, or no such field; found True"),
    ],
)
def test_what_is_not_supported_of_a_published_gte_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read("NewModel", hidden_size=24, **changes)


def test_keys_of_nomic_bert_as_transformers_holds_them():
    model = TextModel(read("NomicBertModel"))
    names = {"embeddings.word_embeddings.weight", "embeddings.LayerNorm.bias", "layers.1.self_attn.q_proj.weight"}
    source = MappingWeights(dict.fromkeys((f"nomic_bert.{name}" for name in names), np.zeros((1,), np.float32)))
    assert names <= {key.removeprefix("nomic_bert.") for key in stored_specs(model, source)}


def read_t5(**changes: Any) -> T5Config:
    fields = ConfigFields({"architectures": ["T5ForConditionalGeneration"], **changes}, "dir/config.json")
    return family_in(fields).read(fields)


def test_t5_as_transformers_has_it():
    config = read_t5(num_layers=3)
    assert (config.stack.layers, config.decoder.layers, config.stack.head_size) == (3, 3, 64)
    assert (config.buckets, config.longest, config.tied, config.start, config.eos_token_ids) == (32, 128, True, 0, (1,))
    assert (config.stack.activation, config.stack.gated_mlp) == (Activation.RELU, False)
    gated = read_t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    assert (gated.stack.activation, gated.stack.gated_mlp, gated.tied) == (Activation.GELU_TANH, True, False)
    assert read_t5(feed_forward_proj="gated-silu").stack.activation is Activation.SILU
    other = read_t5(feed_forward_proj="gated-gelu", dense_act_fn="gelu")  # which transformers takes then
    assert (other.stack.activation, other.stack.gated_mlp) == (Activation.GELU, True)
    assert not read_t5(tie_word_embeddings=True, scale_decoder_outputs=False).tied  # as transformers 5 writes it


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-sine"}, "'feed_forward_proj': expected one of silu"),
        ({"is_decoder": True}, "'is_decoder': expected false, or no such field; found True"),
        ({"relative_attention_num_buckets": 7}, "'relative_attention_num_buckets': expected an even number: half of"),
        ({"relative_attention_max_distance": 16}, "'relative_attention_max_distance': expected an integer of at least"),
        ({"num_decoder_layers": 0}, "'num_decoder_layers': expected an integer of at least 1; found 0"),
    ],
)
def test_what_t5_does_not_support(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read_t5(**changes)


def test_a_file_without_architectures_is_of_the_model_without_a_head(tmp_path: Path):
    for model_type, architecture in (("roberta", "RobertaModel"), ("xlm-roberta", "XLMRobertaModel")):
        (tmp_path / "config.json").write_text(json.dumps({**SIZES, "model_type": model_type}))
        assert load_model(tmp_path).config.architecture == architecture
