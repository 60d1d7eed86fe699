"""Cases of LoRA adapters whose merged models PEFT computed: ``make_adapter_goldens`` wrote the files."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.goldens.golden_files import DATA

ADAPTERS: Final = DATA / "adapters"
"""Per case a directory with one directory per adapter, and ``logits.npy`` of the prompt, f32 [B, T, V]."""

_ATTENTION: Final = ["q_proj", "k_proj", "v_proj", "o_proj"]


class AdapterCase(NamedTuple):
    """Adapters of a golden model.

    Attributes:
        name: name of the case and of its directory.
        model: name of the model in ``CASES``.
        seed: seed of the random numbers.
        adapters: fields of PEFT's LoraConfig, per adapter.
        weights: factor of each adapter.
        official: True where PEFT itself combines the weighted adapters; else their scalings are multiplied.
        live: True if the logits are of the model before ``merge_and_unload``, which merges an adapted embedding into a
            head that is tied to it as well.
        rows: True if rows of the embedding are changed before the adapter is saved with them.
        embeddings: True if the adapter is saved with the embeddings and the head (``save_embedding_layers``).
    """

    name: str
    model: str
    seed: int
    adapters: tuple[Mapping[str, Any], ...]
    weights: tuple[float, ...] = (1.0,)
    official: bool = False
    live: bool = False
    rows: bool = False
    embeddings: bool = False


def _saving(*modules: str, **settings: Any) -> Mapping[str, Any]:
    return {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "modules_to_save": [*modules], **settings}


def _adapting(*modules: str, **settings: Any) -> Mapping[str, Any]:
    return {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj", *modules], **settings}


def _of_tokens(tokens: Any, module: str = "q_proj", **settings: Any) -> Mapping[str, Any]:
    chosen = {"target_modules": [module], "trainable_token_indices": tokens}
    return {"r": 2, "lora_alpha": 4, **chosen, **settings}


_CASES: Final = (
    AdapterCase(
        "two_ranks",
        "llama_gqa",
        1,
        (
            {"r": 3, "lora_alpha": 6, "target_modules": [*_ATTENTION, "gate_proj", "up_proj", "down_proj"]},
            {"r": 5, "lora_alpha": 4, "target_modules": _ATTENTION[:2]},
        ),
        (0.7, 0.3),
        official=True,
    ),
    AdapterCase(
        "patterns",
        "llama_gqa",
        2,
        (
            {
                "r": 4,
                "lora_alpha": 5,
                "target_modules": r".*\.(q_proj|down_proj)",
                "rank_pattern": {"down_proj": 2, r"layers\.0\..*q_proj": 3},
                "alpha_pattern": {"q_proj": 7},
                "use_rslora": True,
            },
            {"r": 2, "lora_alpha": 3, "target_modules": "all-linear", "use_rslora": True},
            {"r": 2, "lora_alpha": 2, "target_modules": ["v_proj"], "layers_to_transform": [1]},
        ),
        (1.0, -0.5, 2.0),
    ),
    AdapterCase(
        "dora",
        "llama_gqa",
        3,
        ({"r": 3, "lora_alpha": 4, "target_modules": [*_ATTENTION, "up_proj", "embed_tokens"], "use_dora": True},),
    ),
    AdapterCase(
        "dora_after_lora",
        "llama_gqa",
        4,
        (
            {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"]},
            {"r": 3, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], "use_dora": True},
        ),
        (0.5, 1.0),
    ),
    AdapterCase(
        "embeddings_and_head",
        "llama_gqa",
        5,
        (
            {
                "r": 2,
                "lora_alpha": 4,
                "target_modules": ["embed_tokens", "k_proj"],
                "modules_to_save": ["lm_head", "norm"],
            },
        ),
    ),
    AdapterCase(
        "bias_of_modules",
        "llama_attention_bias_batch",
        6,
        ({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], "bias": "lora_only", "lora_bias": True},),
    ),
    AdapterCase(
        "all_biases",
        "llama_attention_bias_batch",
        10,
        ({"r": 2, "lora_alpha": 4, "target_modules": ["k_proj"], "bias": "all"},),
    ),
    AdapterCase(
        "columns",
        "gpt2",
        7,
        ({"r": 3, "lora_alpha": 4, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},),
        (0.6,),
    ),
    AdapterCase(
        "dora_columns",
        "gpt2",
        8,
        ({"r": 3, "lora_alpha": 4, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True, "use_dora": True},),
    ),
    AdapterCase(
        "interleaved",
        "gpt_neox",
        11,
        ({"r": 3, "lora_alpha": 4, "target_modules": ["query_key_value", "dense"], "bias": "lora_only"},),
    ),
    AdapterCase(
        "fused",
        "phi3_longrope_partial",
        9,
        ({"r": 3, "lora_alpha": 4, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]},),
        (1.5,),
    ),
    AdapterCase("tied_embedding_saved", "llama_tied", 12, (_saving("embed_tokens"),)),
    AdapterCase("tied_head_saved", "llama_tied", 13, (_saving("lm_head"),)),
    AdapterCase("tied_both_saved", "llama_tied", 14, (_saving("embed_tokens", ensure_weight_tying=True),)),
    AdapterCase("tied_embedding_adapted", "llama_tied", 15, (_adapting("embed_tokens"),), live=True),
    AdapterCase("tied_head_adapted", "llama_tied", 16, (_adapting("lm_head"),), live=True),
    AdapterCase(
        "tied_both_adapted", "llama_tied", 17, (_adapting("embed_tokens", ensure_weight_tying=True),), live=True
    ),
    AdapterCase("tied_rows", "llama_tied", 18, (_adapting("embed_tokens"),), live=True, rows=True),
    AdapterCase("head_saved_twice", "llama_tied", 20, (_saving("lm_head"),), embeddings=True),
    AdapterCase("embedding_saved_twice", "llama_gqa", 21, (_saving("embed_tokens"),), embeddings=True),
    AdapterCase(
        "tied_both_saved_twice",
        "llama_tied",
        22,
        (_saving("embed_tokens", ensure_weight_tying=True),),
        embeddings=True,
    ),
    AdapterCase("tokens", "llama_gqa", 23, (_of_tokens([5, 1, 7]),)),
    AdapterCase("tokens_of_both", "llama_gqa", 24, (_of_tokens({"embed_tokens": [5, 1], "lm_head": [2, 9, 4]}),)),
    AdapterCase("tied_tokens", "llama_tied", 25, (_of_tokens({"embed_tokens": [*range(40)]}),)),
    AdapterCase(
        "tied_tokens_of_both",
        "llama_tied",
        26,
        (_of_tokens({"embed_tokens": [*range(30)], "lm_head": [2, 9, 4]}),),
        live=True,
    ),
    AdapterCase("tokens_saved_with_embeddings", "llama_gqa", 27, (_of_tokens([5, 1, 7]),), embeddings=True),
    AdapterCase("tokens_of_gpt2", "gpt2", 29, (_of_tokens([5, 1, 7], "c_attn", fan_in_fan_out=True),)),
    AdapterCase(
        "parameters",
        "llama_gqa",
        31,
        (
            {
                "r": 2,
                "lora_alpha": 4,
                "target_modules": [],
                "target_parameters": ["q_proj.weight", "layers.1.mlp.down_proj.weight", "embed_tokens.weight"],
                "rank_pattern": {"q_proj": 5, "down_proj.weight": 3},
                "alpha_pattern": {"q_proj.weight": 7},
            },
        ),
    ),
    AdapterCase(
        "square_columns_and_head",  # PEFT stores fan_in_fan_out of the last module, and goes by each one's class
        "gpt2",
        37,
        ({"r": 3, "lora_alpha": 4, "target_modules": ["attn.c_proj", "lm_head"]},),
        live=True,
    ),
    AdapterCase("rows_under_dora", "llama_gqa", 19, (_adapting("embed_tokens", use_dora=True),), rows=True),
)
ADAPTER_CASES: Final = {case.name: case for case in _CASES}
