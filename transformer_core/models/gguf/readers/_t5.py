"""T5, whole and its encoder alone."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, tied, vocabulary

_LONGEST: Final = 128  # the distance from which on llama.cpp takes the last bucket, whatever the checkpoint said


def _t5(source: Source) -> Values:
    return {
        **_sizes(source),
        "architectures": ["T5ForConditionalGeneration"],
        "num_decoder_layers": source.fields.integer("decoder_block_count", source.fields.integer("block_count")),
        "decoder_start_token_id": source.fields.integer("decoder_start_token_id", 0, minimum=0),
        "tie_word_embeddings": tied(source),
    }


def _t5_encoder(source: Source) -> Values:
    return {**_sizes(source), "architectures": ["T5EncoderModel"]}


def _sizes(source: Source) -> Values:
    file, fields = source
    if file.has("enc.blk.1.attn_rel_b.weight"):
        fields.refuse("block_count", "layers that share one table of biases by distance: a UMT5 has one in each layer")
    return {
        "model_type": "t5",
        "vocab_size": vocabulary(source),
        "d_model": fields.integer("embedding_length"),
        "d_ff": fields.integer("feed_forward_length"),
        "d_kv": fields.integer("attention.key_length"),
        "num_layers": fields.integer("block_count"),
        "num_heads": fields.integer("attention.head_count"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_rms_epsilon"),
        "relative_attention_num_buckets": fields.integer("attention.relative_buckets_count"),
        "relative_attention_max_distance": _LONGEST,
        "feed_forward_proj": "gated-gelu" if file.has("enc.blk.0.ffn_gate.weight") else "relu",
        "pad_token_id": 0,
    }


T5S: Final = (
    GgufArchitecture("t5", _t5, encodes=True),
    GgufArchitecture("t5encoder", _t5_encoder, encodes=True),
)
"""Descriptions of architectures in GGUF files."""
