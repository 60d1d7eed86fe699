"""Configuration of a T5."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from lang_core import checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.family._sentence import Pooling
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._stack import EncoderConfig, StackConfig

_GATED: Final = "gated-"
_LEAST_BUCKETS: Final = 4


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config(EncoderConfig):
    """Configuration of a T5; further attributes as of ``EncoderConfig``; ``stack`` is the encoder's.

    Attributes:
        decoder: configuration of the decoder's layers.
        vocabulary: V.
        buckets: number of buckets of biases by distance.
        longest: distance from which on all share the last bucket.
        tied: whether the embedding is also the head, unless ``untied`` has it. States come to the head divided by the
            root of D then, whichever tensor it is, unless ``scaled`` is false.
        scaled: whether states come to the head divided by the root of D if ``tied`` (mT5's do not).
        apart: whether each layer has its own biases by distance (UMT5), and not one table for all.
        pooling: pooling of a model of sentence-transformers; else None.
        start: token that begins an answer.
        eos_token_ids: tokens that end a sequence.
    """

    decoder: StackConfig
    vocabulary: int
    buckets: int
    longest: int
    tied: bool = True
    scaled: bool = True
    apart: bool = False
    pooling: Pooling | None = None
    start: int = 0
    eos_token_ids: tuple[int, ...] = ()

    @property
    def layers(self) -> int:
        """The greater L of encoder and decoder."""
        return max(self.stack.layers, self.decoder.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both encoder and decoder."""
        stacks = {"stack": self.stack, "decoder": self.decoder}
        return replace(
            self, **{name: replace(stack, layers=min(count, stack.layers)) for name, stack in stacks.items()}
        )

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        pooled = {} if self.pooling is None else {"pooling": self.pooling.facts()}
        return {
            "vocabulary": self.vocabulary,
            **self.decoder.facts(),
            "layers": self.layers,
            "encoder": self.stack.facts(),
            "decoder_layers": self.decoder.layers,
            **pooled,
        }


def read_multilingual(fields: ConfigFields, architecture: str, *, apart: bool) -> T5Config:
    """Reads a config.json of an mT5, or with ``apart`` of a UMT5; errors are those of ``read_t5``.

    transformers ties the head, whatever the file says; a stored head with values of its own counts all the same.
    """
    stated = {**_MULTILINGUAL, **{name: value for name, value in fields.values.items() if value is not None}}
    known = ConfigFields({**stated, "tie_word_embeddings": True, "scale_decoder_outputs": True}, fields.where)
    return replace(read_t5(known, architecture), scaled=apart, apart=apart)


# transformers' values of fields that an mT5's file lacks, if they are not T5's.
_MULTILINGUAL: Final = {
    "vocab_size": 250112,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "feed_forward_proj": "gated-gelu",
}


def read_t5(fields: ConfigFields, architecture: str) -> T5Config:
    """Reads a config.json.

    Raises:
        ConfigError: a field is missing, of the wrong type, or not supported.
    """
    if fields.boolean("is_decoder", False):
        fields.refuse("is_decoder", "false, or no such field")
    buckets = fields.integer("relative_attention_num_buckets", 32, minimum=_LEAST_BUCKETS)
    if buckets % 2:
        fields.refuse("relative_attention_num_buckets", "an even number: half of them are for later tokens")
    layers = fields.integer("num_layers", 6)
    stack = _stack(fields, layers)
    return T5Config(
        architecture=architecture,
        stack=stack,
        decoder=replace(stack, layers=fields.integer("num_decoder_layers", layers)),
        vocabulary=fields.integer("vocab_size", 32128),
        buckets=buckets,
        longest=fields.integer("relative_attention_max_distance", 128, minimum=buckets // 2 + 1),
        # transformers scales what goes into the head if files do not say that it is a matrix of its own.
        tied=fields.boolean("scale_decoder_outputs", fields.boolean("tie_word_embeddings", True)),
        start=fields.integer("decoder_start_token_id", fields.integer("pad_token_id", 0, minimum=0), minimum=0),
        eos_token_ids=token_ids_of(fields)["eos_token_ids"] or (1,),
    )


def _stack(fields: ConfigFields, layers: int) -> StackConfig:
    activation, gated = _activation(fields)
    return StackConfig(
        hidden=fields.integer("d_model", 512),
        intermediate=fields.integer("d_ff", 2048),
        layers=layers,
        heads=fields.integer("num_heads", 8),
        head_size=fields.integer("d_kv", 64),
        norm_eps=fields.number("layer_norm_epsilon", 1e-6),
        activation=activation,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        rms_norm=True,
        scale=1.0,
        gated_mlp=gated,
    )


def _activation(fields: ConfigFields) -> tuple[Activation, bool]:
    """Reads ``feed_forward_proj``: the activation, unless ``dense_act_fn`` names another, and if there is a gate."""
    name = str(fields.values.get("feed_forward_proj") or "relu")
    gated = name.startswith(_GATED)
    kind = "gelu_new" if name == "gated-gelu" else name.removeprefix(_GATED)  # as transformers has it
    inner = ConfigFields({**fields.values, "feed_forward_proj": kind}, fields.where)
    activation = activation_of(inner, "feed_forward_proj")
    return activation_of(fields, "dense_act_fn") if fields.has("dense_act_fn") else activation, gated
