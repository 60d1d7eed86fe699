"""Llama and dense models of its kind; Mixtral, which llama.cpp calls a Llama."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import FUSED_QKV, GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, biased, biases, common, window


def _llama(source: Source) -> Values:
    fields = source.fields
    if fields.values.get("expert_count"):
        experts = {
            "num_local_experts": fields.integer("expert_count"),
            "num_experts_per_tok": fields.integer("expert_used_count"),
            "sliding_window": window(fields),
        }
        return common(source, "MixtralForCausalLM", "mixtral", **experts)
    if window(fields):
        return common(source, "MistralForCausalLM", "mistral", sliding_window=window(fields))
    return common(source, "LlamaForCausalLM", "llama", **biases(source))


def _qwen2(source: Source) -> Values:
    return common(source, "Qwen2ForCausalLM", "qwen2", use_sliding_window=False)


def _qwen3(source: Source) -> Values:
    known: Values = {"attention_bias": biased(source, "attn_q"), "use_sliding_window": False}
    if source.file.has(_RANKS) and source.fields.integer("pooling_type", 0, minimum=0) in (0, _RANK):
        # A row for "yes" and one for "no", of which llama.cpp takes the softmax: one score, by their difference.
        known["id2label"] = {"0": "score"}
        return common(source, "Qwen3ForSequenceClassification", "qwen3", **known)
    return common(source, "Qwen3ForCausalLM", "qwen3", **known)


def _phi3(source: Source) -> Values:
    return common(source, "Phi3ForCausalLM", "phi3", sliding_window=window(source.fields))


def _granite(source: Source) -> Values:
    fields = source.fields
    scales = {
        "embedding_multiplier": fields.number("embedding_scale", 1.0),
        "residual_multiplier": fields.number("residual_scale", 1.0),
        "attention_multiplier": fields.number("attention.scale"),
        "logits_scaling": fields.number("logit_scale", 1.0),
    }
    return common(source, "GraniteForCausalLM", "granite", **scales, **biases(source))


def _smollm3(source: Source) -> Values:
    return common(source, "SmolLM3ForCausalLM", "smollm3", no_rope_layer_interval=4, **biases(source))


_RANKS: Final = "cls.output.weight"
_RANK: Final = 4
_SCALES: Final = frozenset({"embedding_scale", "residual_scale", "attention.scale", "logit_scale"})

LLAMA_KINDS: Final = (
    GgufArchitecture("llama", _llama, frozenset({"expert_count", WINDOW}), permuted=True),
    GgufArchitecture("qwen2", _qwen2),
    GgufArchitecture("qwen3", _qwen3),
    GgufArchitecture("phi3", _phi3, frozenset({WINDOW}), forms=FUSED_QKV | {"ffn_up"}),
    GgufArchitecture("granite", _granite, _SCALES, permuted=True),
    GgufArchitecture("smollm3", _smollm3, permuted=True),
)
