"""Spaces of encoders of BERT's kind as decoders."""

from typing import Any, Final

from tests.goldens._drawn_space_types import ABSENT, Drawn, Space

_FLAGS: Final = [True, False, ABSENT]


def _hidden(config: Any, rng: Any) -> Any:
    return config["num_attention_heads"] * rng.choice([6, 8, 10])


def _space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    return {
        "architectures": [[architecture]],
        "model_type": [model_type],
        "is_decoder": [True, True, True, True, False],
        "vocab_size": [61, 87, 93],
        "num_hidden_layers": [1, 2, 3],
        "num_attention_heads": [1, 2, 3, 4],
        "hidden_size": _hidden,
        "intermediate_size": [28, 44, 52],
        "max_position_embeddings": [32, 64],
        "type_vocab_size": [1, 2, 3],
        "hidden_act": ["gelu", "relu", "gelu_new", "silu", ABSENT],
        "layer_norm_eps": [1e-12, 1e-5, 1e-2, ABSENT],
        "pad_token_id": [0, 1, 3],
        "bos_token_id": [1],
        "eos_token_id": [2],
        "tie_word_embeddings": _FLAGS,
        **fields,
    }


_ROBERTAS: Final = {
    "RobertaForCausalLM": "roberta",
    "XLMRobertaForCausalLM": "xlm-roberta",
    "CamembertForCausalLM": "camembert",
    "Data2VecTextForCausalLM": "data2vec-text",
    "RobertaPreLayerNormForCausalLM": "roberta-prelayernorm",
    "XLMRobertaXLForCausalLM": "xlm-roberta-xl",
}
SPACES: Final[dict[str, Space]] = {
    "BertLMHeadModel": _space("bert", "BertLMHeadModel"),
    "ErnieForCausalLM": _space("ernie", "ErnieForCausalLM", use_task_id=_FLAGS, task_type_vocab_size=[2, 3]),
    "BigBirdForCausalLM": _space(
        "big_bird",
        "BigBirdForCausalLM",
        attention_type=["original_full", "original_full", "original_full", "block_sparse", ABSENT],
        use_bias=_FLAGS,
        rescale_embeddings=_FLAGS,
    ),
    "BertGenerationDecoder": _space("bert-generation", "BertGenerationDecoder", type_vocab_size=[ABSENT]),
    "MegatronBertForCausalLM": _space("megatron-bert", "MegatronBertForCausalLM"),
    "RemBertForCausalLM": _space(
        "rembert", "RemBertForCausalLM", input_embedding_size=[8, 12, 18], output_embedding_size=[10, 14, 18]
    ),
    "RoFormerForCausalLM": _space(
        "roformer",
        "RoFormerForCausalLM",
        embedding_size=[12, 18, None, ABSENT],
        rotary_value=[False, False, ABSENT, True],
    ),
    "ElectraForCausalLM": _space("electra", "ElectraForCausalLM", embedding_size=[12, 18, 24]),
    **{name: _space(model_type, name) for name, model_type in _ROBERTAS.items()},
}
