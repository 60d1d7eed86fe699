"""Writes a model as transformers loads it (safetensors, config.json, tokenizer), or as a GGUF file.

convert MODEL --output DIR                      a GGUF file, a quantized checkpoint, or a name on the hub
convert MODEL --to gguf --output FILE           the same for llama.cpp, with --encoding packed
convert MODEL --adapter DIR --output DIR        the same with a LoRA adapter merged
"""

from typing import Final

from absl import flags

import tapeline
from lang_core import quantizable
from tapeline.cli import TerminalProgress, parse_size, user_path
from tapeline.command._flags import flag_translator
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.converting import CONVERTED_DTYPES, CONVERTED_FORMATS
from tapeline.quantizing import AUTO

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
    "output",
    None,
    "Output directory, new or empty; with --to=gguf the path of a new file.",
    required=True,
    flag_values=FLAGS,
)
_TO: Final = flags.DEFINE_enum("to", "safetensors", CONVERTED_FORMATS, "Format of the output.", flag_values=FLAGS)
_ENCODING: Final = flags.DEFINE_enum(
    "encoding",
    None,
    (AUTO, *quantizable()),
    "Encoding of the matrices of a GGUF file; auto: each its own, by measured loss. Default: unchanged from a GGUF "
    "file, --dtype from others.",
    flag_values=FLAGS,
)
_IMATRIX: Final = flags.DEFINE_string(
    "imatrix",
    None,
    "Importance matrix (llama.cpp's .gguf or .dat) for --encoding; with --calibration the file that is written.",
    flag_values=FLAGS,
)
_CALIBRATION: Final = flags.DEFINE_string(
    "calibration",
    None,
    "Text file over which the importance matrix, or the loss of --encoding=auto, is measured.",
    flag_values=FLAGS,
)
_TARGET_BPW: Final = flags.DEFINE_float(
    "target_bpw",
    None,
    "Maximum bits per weight of the matrices, for --encoding=auto. Default: 4.5, unless --max_loss is given.",
    flag_values=FLAGS,
)
_MAX_LOSS: Final = flags.DEFINE_float(
    "max_loss",
    None,
    "Maximum loss for --encoding=auto: KL divergence of the logits, in nats per token.",
    flag_values=FLAGS,
)
_REPORT: Final = flags.DEFINE_string(
    "report",
    None,
    "File for the losses that --encoding=auto measured, as JSON; a picture is written beside it.",
    flag_values=FLAGS,
)
_CALIBRATION_TOKENS: Final = flags.DEFINE_integer(
    "calibration_tokens", 4096, "Maximum number of tokens taken from --calibration.", lower_bound=64, flag_values=FLAGS
)
_TOKENIZER: Final = flags.DEFINE_bool(
    "tokenizer", True, "Whether a GGUF file has the tokenizer and the chat template.", flag_values=FLAGS
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
    """Writes the directory or the file, and prints its path."""
    shard = parse_size("shard_size", _SHARD.value)
    with TerminalProgress(flag_translator(FLAGS)) as progress:
        converted = tapeline.convert(
            _MODEL.value,
            _OUTPUT.value,
            to=_TO.value,
            dtype=_DTYPE.value,
            encoding=_ENCODING.value,
            imatrix=_IMATRIX.value,
            calibration=_CALIBRATION.value,
            calibration_tokens=_CALIBRATION_TOKENS.value,
            target_bpw=_TARGET_BPW.value,
            max_loss=_MAX_LOSS.value,
            report=_REPORT.value,
            tokenizer=_TOKENIZER.value,
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
