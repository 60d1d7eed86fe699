"""The config.json of a model in a GGUF file, from its metadata.

llama.cpp defines the metadata: convert_hf_to_gguf.py writes them, and llama-model.cpp reads them.
"""

import re
from typing import Any, Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.family import WHERE, kind_of, near_of_kind
from transformer_core.models.gguf._sampling import sampling_files
from transformer_core.models.gguf.readers import (
    CHANGING,
    FREQUENCIES,
    READERS,
    GgufArchitecture,
    Source,
    Values,
    architecture_of,
    model_fields,
    sentence_files,
    tokenizer_fields,
)

_LAYER: Final = re.compile(r"(?:enc\.|dec\.)?blk\.([0-9]{1,6})\.")


def config_values_of(file: GgufCheckpoint, known: GgufArchitecture) -> Values:
    """Returns the values of the model's config.json.

    Args:
        file: checkpoint with the metadata.
        known: its architecture.

    Raises:
        ConfigError: a field is missing, of the wrong type or out of range; names it.
    """
    fields = model_fields(file, known.name)
    for key in CHANGING:
        if key not in known.reads and fields.values.get(key):
            fields.refuse(key, f"no such field, or 0: {known.name} files are read without it")
    _check_layers(file, fields)
    return {**_tokens(file), **known.read(Source(file, fields))}


def description_of(file: GgufCheckpoint, known: GgufArchitecture) -> dict[str, Any]:
    """Returns the files that describe the model beside its config.json, by name."""
    return {**sentence_files(Source(file, model_fields(file, known.name))), **sampling_files(file)}


def known_architecture(file: GgufCheckpoint) -> GgufArchitecture:
    """Returns the architecture of a file.

    Raises:
        ConfigError: it is not supported.
    """
    name = architecture_of(file)
    if name not in READERS:
        kinds = [(known, kind_of(known, default="decoder")) for known in READERS]
        near = near_of_kind(name, kind_of(name, default="decoder"), kinds)
        raise ConfigError(
            f"{file.path}: general.architecture: {name!r} is not supported{near}: take the model's safetensors, if its "
            f"family is supported; {WHERE}"
        )
    return READERS[name]


def _check_layers(file: GgufCheckpoint, fields: ConfigFields) -> None:
    """Refuses more layers than are stored, before a model is made of them."""
    layers = [int(match[1]) for key in file.keys() if (match := _LAYER.match(key))]  # noqa: SIM118
    stored = max(layers, default=-1) + 1
    for name in ("block_count", "decoder_block_count"):
        if fields.integer(name, stored if name != "block_count" else None, minimum=0) > stored:
            fields.refuse(name, f"at most {stored}, the layers that the file has tensors of")


def _tokens(file: GgufCheckpoint) -> Values:
    fields = tokenizer_fields(file)
    ends = [
        fields.integer(key, minimum=0) for key in ("eos_token_id", "eot_token_id", "eom_token_id") if fields.has(key)
    ]
    values: Values = {"eos_token_id": list(dict.fromkeys(ends))} if ends else {}
    if fields.has("bos_token_id"):
        values["bos_token_id"] = fields.integer("bos_token_id", minimum=0)
    return values


ARCHITECTURES: Final = tuple(READERS)
"""Values of ``general.architecture`` that are supported."""

IGNORABLE: Final = (
    *FREQUENCIES,
    "blk.*.attn_rot_embd.weight",
    "blk.*.rope_freqs.weight",
    "blk.*.attn.bias",
    "dec.blk.*.cross_attn_rel_b.weight",
)
"""Tensors that are not read, because the configuration has what they hold."""
