"""Writes a model as a directory that transformers loads: safetensors, config.json and tokenizer.

convert MODEL --output DIR                      a GGUF file, a quantized checkpoint, or a name on the hub
convert MODEL --adapter DIR --output DIR        the same with a LoRA adapter merged
"""

from typing import Final

from absl import flags

import tapeline
from tapeline.cli import TerminalProgress, parse_size, user_path
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.converting import CONVERTED_DTYPES

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("model",),)

_MODEL: Final = flags.DEFINE_string(
    "model",
    None,
    "Model: a Hugging Face directory, a .gguf file, a name on the hub, or demo.",
    required=True,
    flag_values=FLAGS,
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "Output directory. Must be new or empty.", required=True, flag_values=FLAGS
)
_DTYPE: Final = flags.DEFINE_enum(
    "dtype",
    None,
    CONVERTED_DTYPES,
    "Dtype of the weights. Default: that of the checkpoint; f16 for quantized ones.",
    flag_values=FLAGS,
)
_ADAPTER: Final = flags.DEFINE_multi_string(
    "adapter",
    [],
    "LoRA adapter to merge: a PEFT directory or a name on the hub, with =WEIGHT if not 1.",
    flag_values=FLAGS,
)
_SHARD: Final = flags.DEFINE_string("shard_size", "5GB", "Largest size of a weights file.", flag_values=FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Writes the directory, and prints its path."""
    shard = parse_size("shard_size", _SHARD.value)
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        converted = tapeline.convert(
            _MODEL.value,
            _OUTPUT.value,
            dtype=_DTYPE.value,
            adapter=_ADAPTER.value,
            shard_bytes=shard,
            progress=progress,
            base=user_path(""),
        )
    if _FORMAT.is_json:
        put_json(
            {
                "output": converted.path,
                "dtype": converted.dtype,
                "tensors": converted.tensors,
                "nbytes": converted.nbytes,
            }
        )
        return
    print(converted.path)
