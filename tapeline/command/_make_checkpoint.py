"""Writes a Hugging Face directory with random weights, for measurements and for trying a model family.

make_checkpoint --output DIR --preset tinyllama-1.1b
make_checkpoint --output DIR --config config.json
"""

from pathlib import Path
from typing import Final

from absl import flags

from lang_core import DType, InputError, as_dtype
from tapeline import cli
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._paths import check_readable
from transformer_core.checkpoints import LLAMA_PRESETS, write_random_llama
from transformer_core.models import write_random_model

FLAGS: Final = flags.FlagValues()

_OUTPUT: Final = flags.DEFINE_string("output", None, "Output directory.", required=True, flag_values=FLAGS)
_PRESET: Final = flags.DEFINE_enum(
    "preset", None, sorted(LLAMA_PRESETS), "Sizes of a Llama model. Default: tiny.", flag_values=FLAGS
)
_CONFIG: Final = flags.DEFINE_string(
    "config", None, "Path of a config.json of any supported family, instead of a preset.", flag_values=FLAGS
)
_NUM_LAYERS: Final = flags.DEFINE_integer(
    "num_layers", None, "Number of layers, with a preset. Default: the preset's.", lower_bound=1, flag_values=FLAGS
)
_DTYPE: Final = flags.DEFINE_enum("dtype", "bf16", ["bf16", "f16", "f32"], "Dtype of the weights.", flag_values=FLAGS)
_SEED: Final = flags.DEFINE_integer("seed", 0, "Random seed of the weights.", lower_bound=0, flag_values=FLAGS)
_SHARDS: Final = flags.DEFINE_integer("shards", 1, "Number of safetensors files.", lower_bound=1, flag_values=FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Writes the checkpoint and prints its files."""
    output, dtype = str(cli.user_path(_OUTPUT.value)), as_dtype(_DTYPE.value)
    check_readable("config", [] if _CONFIG.value is None else [_CONFIG.value])
    cli.say(f"writing random weights in {dtype.name} to {output}")
    paths = _write(output, dtype)
    if _FORMAT.is_json:
        files = [{"file": path, "bytes": Path(path).stat().st_size} for path in paths]
        put_json({"output": output, "files": files})
    else:
        print("\n".join(paths))


def _write(output: str, dtype: DType) -> list[str]:
    seeded = {"seed": _SEED.value, "shards": _SHARDS.value}
    if _CONFIG.value is None:
        sizes = LLAMA_PRESETS[_PRESET.value or "tiny"]
        if _NUM_LAYERS.value is not None:
            sizes = sizes._replace(layers=_NUM_LAYERS.value)
        return write_random_llama(output, sizes, dtype, **seeded)
    for flag in (_PRESET, _NUM_LAYERS):
        if flag.value is not None:
            raise InputError(f"--{flag.name} and --config: the sizes are those of the config.json; give one of the two")
    return write_random_model(output, cli.user_path(_CONFIG.value), dtype, **seeded)
