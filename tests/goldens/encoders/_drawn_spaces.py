"""Spaces of configurations of encoders, by model type; each draws the architecture, too."""

import random
from collections.abc import Mapping
from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens._drawn_space_types import ABSENT, Drawn, Space, decoder_space, per_layer, rope

_ACTIVATIONS: Final = ["gelu", "gelu_new", "relu", "silu"]
_HEADS: Final = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def _architectures(*names: str) -> list[list[str]]:
    return [[name] for name in names]


def _classes(config: Config, rng: random.Random) -> Any:
    """Draws the names of classes where the architecture has some."""
    if not config["architectures"][0].endswith("Classification"):
        return ABSENT
    return {str(label): f"class {label}" for label in range(rng.choice([1, 2, 4]))}


def _bert_space(name: str, model_type: str, **fields: list[Any] | Drawn) -> Space:
    """Returns a BERT's space with other ``fields``."""
    return {
        "architectures": _architectures(*(f"{name}{head}" for head in _HEADS)),
        "model_type": [model_type],
        "vocab_size": [61, 87],
        "num_hidden_layers": [1, 2, 3],
        "num_attention_heads": [1, 2, 3, 4],
        "hidden_size": lambda config, rng: config["num_attention_heads"] * rng.choice([6, 8, 10]),
        "intermediate_size": [28, 41],
        "hidden_act": [*_ACTIVATIONS, ABSENT],
        "layer_norm_eps": [1e-12, 1e-5, 1e-2, ABSENT],
        "max_position_embeddings": [24, 40],
        "type_vocab_size": [1, 2, 3, ABSENT],
        "pad_token_id": [0],
        "id2label": _classes,
        "is_decoder": [*[ABSENT] * 8, False, True],
        "tie_word_embeddings": [*[ABSENT] * 5, True, True, False],
        **fields,
    }


_ROBERTA: Final[dict[str, Any]] = {"pad_token_id": [0, 1, 3, ABSENT], "classifier_dropout": [None, 0.2, ABSENT]}


def _two_ropes(config: Config, rng: random.Random) -> Any:
    """Draws a RoPE for layers that see all tokens and one for the others; sometimes none."""
    drawn = {kind: rope(config, rng) for kind in ("full_attention", "sliding_attention")}
    return ABSENT if ABSENT in drawn.values() else drawn


_T5: Final[Space] = {
    "architectures": _architectures("T5ForConditionalGeneration", "T5EncoderModel"),
    "model_type": ["t5"],
    "vocab_size": [61, 87],
    "num_layers": [1, 2, 3],
    "num_decoder_layers": [1, 2, ABSENT],
    "num_heads": [1, 2, 4],
    "d_kv": [5, 8],
    "d_model": [16, 22],
    "d_ff": [28, 41],
    "feed_forward_proj": ["relu", "gelu", "silu", "gelu_new", "gated-gelu", "gated-silu", "gated-relu", ABSENT],
    "layer_norm_epsilon": [1e-6, 1e-2, ABSENT],
    "relative_attention_num_buckets": [4, 8, 32, 7, ABSENT],
    "relative_attention_max_distance": [6, 20, ABSENT],
    "tie_word_embeddings": [True, False, ABSENT],
    "decoder_start_token_id": [0, 3],
    "pad_token_id": [0],
    "eos_token_id": [1],
}


def _t5gemma_part(config: Config, rng: random.Random) -> Any:
    """Draws the encoder or the decoder of a T5Gemma."""
    heads, layers = rng.choice([(2, 1), (4, 2), (3, 3)]), rng.choice([1, 2, 3])
    drawn = {
        "attention_bias": rng.choice([True, False, ABSENT]),
        "attn_logit_softcapping": rng.choice([None, 5.0, ABSENT]),
        "final_logit_softcapping": rng.choice([None, 9.0, ABSENT]),
        "hidden_activation": rng.choice(["gelu", "silu", ABSENT]),
        "layer_types": rng.choice([["full_attention", "sliding_attention", "full_attention"][:layers], ABSENT]),
        "query_pre_attn_scalar": rng.choice([9, ABSENT]),
        "sliding_window": rng.choice([2, 4, ABSENT]),
    }
    sizes = {"head_dim": 8, "hidden_size": heads[0] * 12, "intermediate_size": 41, "vocab_size": config["vocab_size"]}
    counts = {"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "num_hidden_layers": layers}
    return {**sizes, **counts, **{name: value for name, value in drawn.items() if value is not ABSENT}}


_T5GEMMA: Final[Space] = {
    "architectures": _architectures("T5GemmaForConditionalGeneration"),
    "model_type": ["t5gemma"],
    "vocab_size": [61, 87],
    "encoder": _t5gemma_part,
    "decoder": _t5gemma_part,
    "tie_word_embeddings": [True, False, ABSENT],
    "bos_token_id": [2],
    "eos_token_id": [1],
    "pad_token_id": [0],
}


def _sided(name: str, choices: list[Any]) -> dict[str, Any]:
    return {f"{part}_{name}": choices for part in ("encoder", "decoder")}


def _bart_group(architecture: str, model_type: str, **fields: list[Any] | Drawn) -> Space:
    """Returns the space of a family of BART's group with other ``fields``."""
    return {
        "architectures": _architectures(architecture),
        "model_type": [model_type],
        "vocab_size": [61, 87],
        "d_model": [24, 48],
        **_sided("layers", [1, 2, 3]),
        **_sided("attention_heads", [1, 2, 4, 6]),
        **_sided("ffn_dim", [28, 41]),
        "activation_function": ["gelu", "relu", "swish", "silu", "gelu_new", ABSENT],
        "scale_embedding": [True, False, ABSENT],
        "max_position_embeddings": [24, 40],
        "normalize_before": [True, False, ABSENT],
        "static_position_embeddings": [True, False, ABSENT],
        "tie_word_embeddings": [*[ABSENT] * 3, True, False],
        "pad_token_id": [0, 1, 3],
        "eos_token_id": [2],
        "decoder_start_token_id": [2, 0],
        "forced_eos_token_id": [2, None, ABSENT],
        **fields,
    }


_MARIAN: Final[dict[str, Any]] = {
    "share_encoder_decoder_embeddings": [True, False, ABSENT],
    "decoder_vocab_size": lambda config, rng: (
        rng.choice([53, 71]) if config.get("share_encoder_decoder_embeddings") is False else ABSENT
    ),
}
_BART_GROUP: Final = {
    "bart": _bart_group("BartForConditionalGeneration", "bart"),
    "led": _bart_group(
        "LEDForConditionalGeneration",
        "led",
        attention_window=lambda config, rng: rng.choice([4, 6, [4, 8, 4][: config["encoder_layers"]], 8]),
        max_encoder_position_embeddings=lambda config, rng: rng.choice([40, 48, ABSENT]),
        max_decoder_position_embeddings=[24, 30],
    ),
    "plbart": _bart_group("PLBartForConditionalGeneration", "plbart"),
    "mbart": _bart_group("MBartForConditionalGeneration", "mbart"),
    "pegasus": _bart_group("PegasusForConditionalGeneration", "pegasus"),
    "marian": _bart_group("MarianMTModel", "marian", **_MARIAN),
    "m2m_100": _bart_group("M2M100ForConditionalGeneration", "m2m_100"),
    "blenderbot": _bart_group("BlenderbotForConditionalGeneration", "blenderbot"),
    "blenderbot-small": _bart_group("BlenderbotSmallForConditionalGeneration", "blenderbot-small"),
}


def _tower(**fields: list[Any] | Drawn) -> Space:
    return {
        "num_hidden_layers": [1, 2],
        "num_attention_heads": [1, 2, 3],
        "hidden_size": lambda config, rng: config["num_attention_heads"] * rng.choice([6, 8]),
        "intermediate_size": [28, 41],
        "hidden_act": ["quick_gelu", "gelu", ABSENT],
        "layer_norm_eps": [1e-5, 1e-2, ABSENT],
        **fields,
    }


def _inner(space: Space) -> Drawn:
    """Returns a draw of an inner configuration."""

    def drawn(config: Config, rng: random.Random) -> Any:
        del config
        inner: Config = {}
        for name, values in space.items():
            value = values(inner, rng) if callable(values) else rng.choice(values)
            if value is not ABSENT:
                inner[name] = value
        return inner

    return drawn


_PICTURE: Final[dict[str, Any]] = {"image_size": [10, 14], "patch_size": [4, 5, 7], "num_channels": [3, 1, ABSENT]}
_QWEN3: Final[dict[str, Any]] = {
    "attention_bias": [True, False, ABSENT],
    "use_sliding_window": [True, False, ABSENT],
    "sliding_window": [3, 5],
    "max_window_layers": [0, 1, 2],
    "id2label": _classes,
    "pad_token_id": [0],
}
SPACES: Final[dict[str, Space]] = {
    "bert": _bert_space("Bert", "bert", position_embedding_type=["absolute", *[ABSENT] * 6, "relative_key"]),
    **{
        f"{kind}_next": {**_bert_space(name, kind), "architectures": _architectures(f"{name}ForNextSentencePrediction")}
        for kind, name in (("bert", "Bert"), ("ernie", "Ernie"), ("megatron-bert", "MegatronBert"))
    },
    "roberta": _bert_space("Roberta", "roberta", **_ROBERTA),
    "xlm-roberta": _bert_space("XLMRoberta", "xlm-roberta", **_ROBERTA),
    "xlm-roberta-xl": _bert_space("XLMRobertaXL", "xlm-roberta-xl", **_ROBERTA),
    "camembert": _bert_space("Camembert", "camembert", **_ROBERTA),
    "ernie": _bert_space("Ernie", "ernie", use_task_id=[True, False, ABSENT], task_type_vocab_size=[3, 2, ABSENT]),
    "megatron-bert": _bert_space("MegatronBert", "megatron-bert"),
    "rembert": _bert_space(
        "RemBert",
        "rembert",
        input_embedding_size=[10, 14],
        output_embedding_size=[12, 18],
        tie_word_embeddings=[False, ABSENT],
    ),
    "big_bird": _bert_space(
        "BigBird",
        "big_bird",
        architectures=_architectures(*(f"BigBird{head}" for head in _HEADS[:-1])),
        attention_type=["original_full", "block_sparse", ABSENT],
        use_bias=[True, False, ABSENT],
        rescale_embeddings=[True, False, ABSENT],
    ),
    "roberta-prelayernorm": _bert_space("RobertaPreLayerNorm", "roberta-prelayernorm", **_ROBERTA),
    "data2vec-text": _bert_space("Data2VecText", "data2vec-text", **_ROBERTA),
    "electra": _bert_space(
        "Electra",
        "electra",
        embedding_size=lambda config, rng: rng.choice([config["hidden_size"], 10, 14]),
        position_embedding_type=[ABSENT],
    ),
    "albert": _bert_space(
        "Albert",
        "albert",
        embedding_size=lambda config, rng: rng.choice([config["hidden_size"], 10, 14]),
        num_hidden_layers=[1, 2, 3, 5],
        num_hidden_groups=lambda config, rng: rng.choice([1, 1, min(2, config["num_hidden_layers"]), ABSENT]),
        inner_group_num=[*[ABSENT] * 4, 1, 2],
        is_decoder=[ABSENT],
    ),
    "deberta-v2": _bert_space(
        "DebertaV2",
        "deberta-v2",
        type_vocab_size=[0, 2, ABSENT],
        relative_attention=[True, True, True, True, False],
        max_relative_positions=[-1, 6, 30, ABSENT],
        position_buckets=[-1, 4, 8, 12, ABSENT],
        pos_att_type=[["c2p", "p2c"], ["p2c"], "c2p|p2c", ["c2p"], "p2c|c2p"],
        share_att_key=[True, False, ABSENT],
        norm_rel_ebd=["layer_norm", "none", ABSENT],
        position_biased_input=[True, False, ABSENT],
        conv_kernel_size=[*[ABSENT] * 6, 0, 3],
        pooler_hidden_act=["gelu", ABSENT],
        layer_norm_eps=[1e-7, 1e-2, ABSENT],
        is_decoder=[ABSENT],
    ),
    "deberta": _bert_space(
        "Deberta",
        "deberta",
        type_vocab_size=[0, 2, ABSENT],
        relative_attention=[True, True, True, False, ABSENT],
        max_relative_positions=[-1, 6, 30, ABSENT],
        pos_att_type=[["c2p", "p2c"], ["p2c"], "c2p|p2c", ["c2p"], "p2c|c2p", "none"],
        position_biased_input=[True, False, ABSENT],
        talking_head=[*[ABSENT] * 8, False, True],
        pooler_hidden_act=["gelu", ABSENT],
        layer_norm_eps=[1e-7, 1e-2, ABSENT],
        is_decoder=[ABSENT],
    ),
    "roformer": _bert_space(
        "RoFormer",
        "roformer",
        embedding_size=[10, 14, None, ABSENT],
        rotary_value=[*[ABSENT] * 8, False, True],
    ),
    "layoutlmv3": _bert_space(
        "LayoutLMv3",
        "layoutlmv3",
        architectures=_architectures(*(f"LayoutLMv3{head}" for head in (_HEADS[0], *_HEADS[2:]))),
        id2label=lambda config, rng: (
            {str(label): f"class {label}" for label in range(rng.choice([1, 2, 4, 11]))}
            if config["architectures"][0].endswith("Classification")
            else ABSENT
        ),
        pad_token_id=[0, 1, 3],
        num_attention_heads=[1, 2, 4],
        hidden_size=[24],
        coordinate_size=[4],
        shape_size=[4],
        has_relative_attention_bias=[True, True, False, ABSENT],
        has_spatial_attention_bias=[True, True, False, ABSENT],
        rel_pos_bins=[8, 32, ABSENT],
        max_rel_pos=[9, 128, ABSENT],
        rel_2d_pos_bins=[16, ABSENT],
        max_rel_2d_pos=[60, ABSENT],
        max_2d_position_embeddings=[1024, ABSENT],
        visual_embed=[False, True],
        input_size=[32],
        is_decoder=[ABSENT],
        tie_word_embeddings=[ABSENT],
    ),
    "longformer": _bert_space(
        "Longformer",
        "longformer",
        attention_window=lambda config, rng: rng.choice([2, 4, [2, 6, 4][: config["num_hidden_layers"]], 512, ABSENT]),
        pad_token_id=[0, 1, 3],
        sep_token_id=[2],
        is_decoder=[ABSENT],
    ),
    "mobilebert": _bert_space(
        "MobileBert",
        "mobilebert",
        embedding_size=[5, 6],
        intra_bottleneck_size=lambda config, rng: config["num_attention_heads"] * rng.choice([4, 5]),
        use_bottleneck=[True, True, False, ABSENT],
        use_bottleneck_attention=[True, False, ABSENT],
        key_query_shared_bottleneck=[True, True, ABSENT],
        num_feedforward_networks=[1, 2, 4, ABSENT],
        normalization_type=["no_norm", "layer_norm", ABSENT],
        trigram_input=[True, True, False, ABSENT],
        classifier_activation=[*[ABSENT] * 8, True, False],
        is_decoder=[ABSENT],
    ),
    "mpnet": _bert_space(
        "MPNet",
        "mpnet",
        type_vocab_size=[ABSENT],
        pad_token_id=[1, 0, ABSENT],
        relative_attention_num_buckets=[32, 40, 8, ABSENT],
    ),
    "distilbert": {
        "architectures": _architectures(*(f"DistilBert{head}" for head in _HEADS)),
        "model_type": ["distilbert"],
        "vocab_size": [61, 87],
        "n_layers": [1, 2, 3],
        "n_heads": [1, 2, 3, 4],
        "dim": lambda config, rng: config["n_heads"] * rng.choice([6, 8, 10]),
        "hidden_dim": [28, 41],
        "activation": ["gelu", "relu", "silu", ABSENT],
        "max_position_embeddings": [24, 40],
        "sinusoidal_pos_embds": [True, False, ABSENT],
        "seq_classif_dropout": [0.2, ABSENT],
        "pad_token_id": [0, ABSENT],
        "id2label": _classes,
        "tie_word_embeddings": [*[ABSENT] * 5, True, True, False],
    },
    "modernbert": _bert_space(
        "ModernBert",
        "modernbert",
        hidden_act=[ABSENT],
        layer_norm_eps=[ABSENT],
        type_vocab_size=[ABSENT],
        hidden_activation=[*_ACTIVATIONS, ABSENT],
        norm_eps=[1e-5, 1e-2, ABSENT],
        norm_bias=[True, False, ABSENT],
        attention_bias=[True, False, ABSENT],
        mlp_bias=[True, False, ABSENT],
        decoder_bias=[True, False, ABSENT],
        classifier_bias=[True, False, ABSENT],
        classifier_activation=["gelu", "relu", ABSENT],
        classifier_pooling=["cls", "mean", ABSENT],
        global_attn_every_n_layers=[1, 2, 3, ABSENT],
        local_attention=[2, 6, 128, ABSENT],
        layer_types=per_layer("full_attention", "sliding_attention"),
        rope_parameters=_two_ropes,
    ),
    "nomic_bert": _bert_space(
        "NomicBert",
        "nomic_bert",
        architectures=_architectures(*(f"NomicBert{head}" for head in _HEADS[:-1])),
        head_dim=[4, 8, ABSENT],
        rope_parameters=rope,
        position_embedding_type=[ABSENT],
    ),
    "jina_embeddings_v3": _bert_space(
        "JinaEmbeddingsV3", "jina_embeddings_v3", pad_token_id=[0, 1], rope_parameters=rope, is_decoder=[ABSENT]
    ),
    "gte": _bert_space(
        "Gte",
        "gte",
        architectures=_architectures(*(f"Gte{head}" for head in _HEADS[:-1])),
        pad_token_id=[0, 1],
        type_vocab_size=[0, 1, 2, ABSENT],
        rope_parameters=rope,
        is_decoder=[ABSENT],
    ),
    "esm": _bert_space(
        "Esm",
        "esm",
        architectures=_architectures(*(f"Esm{head}" for head in _HEADS[:-1])),
        hidden_act=[ABSENT],
        type_vocab_size=[ABSENT],
        pad_token_id=[0, 1, 3],
        mask_token_id=[4, 5, 32],
        token_dropout=[True, True, False, ABSENT],
        emb_layer_norm_before=[True, False, ABSENT],
        position_embedding_type=["absolute", "rotary", "rotary", ABSENT],
        rope_theta=[500.0, 10000.0, ABSENT],
        vocab_size=[33, 9],
        is_decoder=[ABSENT],
    ),
    "eurobert": decoder_space(
        "eurobert",
        "EuroBertModel",
        attention_bias=[True, False, ABSENT],
        mlp_bias=[True, False, ABSENT],
        pad_token_id=[0],
    ),
    "gemma3_text": decoder_space(
        "gemma3_text",
        "Gemma3TextModel",
        hidden_act=[ABSENT],
        hidden_activation=["gelu_pytorch_tanh", "silu", ABSENT],
        attention_bias=[True, False, ABSENT],
        layer_types=per_layer("full_attention", "sliding_attention"),
        sliding_window=[3, 5, 8, 16],
        query_pre_attn_scalar=[4, 13],
        use_bidirectional_attention=[True, True, False, ABSENT],
        rope_parameters=_two_ropes,
        attn_logit_softcapping=[None, ABSENT, 5.0],
        pad_token_id=[0],
    ),
    "qwen3": {
        **decoder_space("qwen3", "Qwen3Model", **_QWEN3),
        "architectures": _architectures("Qwen3Model", "Qwen3ForSequenceClassification"),
    },
    "t5": _T5,
    **{
        kind: {
            **_T5,
            "architectures": _architectures(f"{kind.upper()}ForConditionalGeneration", f"{kind.upper()}EncoderModel"),
            "model_type": [kind],
        }
        for kind in ("mt5", "umt5")
    },
    **_BART_GROUP,
    "t5gemma": _T5GEMMA,
    "clip": {
        "architectures": _architectures("CLIPModel"),
        "model_type": ["clip"],
        "projection_dim": [11, 18],
        "text_config": _inner(
            _tower(vocab_size=[53], max_position_embeddings=[12, 15], eos_token_id=[2, 50], bos_token_id=[0])
        ),
        "vision_config": _inner(_tower(**_PICTURE)),
    },
    "clip_vision_model": {
        "architectures": _architectures("CLIPVisionModel"),
        "model_type": ["clip_vision_model"],
        **_tower(**_PICTURE),
    },
}

_BIASED: Final[dict[str, Any]] = {"attention_bias": [True, False, ABSENT]}
_WINDOWED: Final[dict[str, Any]] = {"sliding_window": [None, 3, 5]}
_GEMMA: Final[dict[str, Any]] = {**_BIASED, "hidden_act": ["gelu_pytorch_tanh"], "hidden_activation": [ABSENT]}
_GEMMA2: Final[dict[str, Any]] = {
    **_BIASED,
    "layer_types": per_layer("full_attention", "sliding_attention"),
    "sliding_window": [3, 5],
    "query_pre_attn_scalar": [4, 13],
    "attn_logit_softcapping": [None, 5.0, ABSENT],
}
_LAYER_NORMED: Final[dict[str, Any]] = {"layer_norm_eps": [1e-5, 1e-2], "rms_norm_eps": [ABSENT], "head_dim": [ABSENT]}
_EXPERTS: Final[dict[str, Any]] = {"num_local_experts": [4], "num_experts_per_tok": [1, 2, 3]}
_STABLELM: Final[dict[str, Any]] = {
    **_LAYER_NORMED,
    "use_qkv_bias": [True, False, ABSENT],
    "qk_layernorm": [True, False, ABSENT],
    "use_parallel_residual": [True, False, ABSENT],
}

# Decoders that classify: by the language model's architecture the beginning of their own, and the space of their
# fields if draw_families has none.
_CLASSIFIERS: Final[dict[str, tuple[str, Space]]] = {
    "LlamaForCausalLM": ("Llama", {}),
    "MistralForCausalLM": ("Mistral", decoder_space("mistral", "", **_WINDOWED)),
    "MixtralForCausalLM": ("Mixtral", decoder_space("mixtral", "", **_WINDOWED, **_EXPERTS)),
    "Qwen2ForCausalLM": ("Qwen2", decoder_space("qwen2", "", **{**_QWEN3, "attention_bias": [ABSENT]})),
    "Qwen3ForCausalLM": ("Qwen3", decoder_space("qwen3", "", **_QWEN3)),
    "GemmaForCausalLM": ("Gemma", decoder_space("gemma", "", **_GEMMA)),
    "Gemma2ForCausalLM": ("Gemma2", decoder_space("gemma2", "", **_GEMMA2)),
    "Gemma3ForCausalLM": ("Gemma3Text", {}),
    "PhiForCausalLM": ("Phi", {}),
    "Phi3ForCausalLM": ("Phi3", decoder_space("phi3", "", head_dim=[ABSENT], **_WINDOWED)),
    "StableLmForCausalLM": ("StableLm", decoder_space("stablelm", "", **_STABLELM)),
    "Starcoder2ForCausalLM": ("Starcoder2", {}),
}
_KINDS: Final = ("Sequence", "Token")


def classifier_spaces(decoders: Mapping[str, Space]) -> dict[str, Space]:
    """Returns the spaces of decoders that classify, by the beginning of their architecture, of those of decoders."""
    return {
        name: {
            **(space or decoders[lm]),
            "architectures": _architectures(
                *(f"{name}For{kind}Classification" for kind in _KINDS if (name, kind) != ("Gemma3Text", "Token"))
            ),
            "pad_token_id": [0, 0, None],
            "id2label": _classes,
        }
        for lm, (name, space) in _CLASSIFIERS.items()
    }
