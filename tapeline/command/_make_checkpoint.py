"""Writes a Hugging Face directory with random Llama weights, for measurements.

make_checkpoint --output DIR --preset tinyllama-1.1b
"""

import time
from pathlib import Path
from typing import Final

from absl import flags

from lang_core import as_dtype
from tapeline import cli
from tapeline.command._format_flags import FormatFlag, put_json
from transformer_core.checkpoints import LLAMA_PRESETS, write_random_llama

FLAGS: Final = flags.FlagValues()

_OUTPUT: Final = flags.DEFINE_string("output", None, "The directory to write.", required=True, flag_values=FLAGS)
_PRESET: Final = flags.DEFINE_enum("preset", "tiny", sorted(LLAMA_PRESETS), "The model's sizes.", flag_values=FLAGS)
_NUM_LAYERS: Final = flags.DEFINE_integer(
    "num_layers", None, "Another number of layers.", lower_bound=1, flag_values=FLAGS
)
_DTYPE: Final = flags.DEFINE_enum("dtype", "bf16", ["bf16", "f16", "f32"], "The weights' dtype.", flag_values=FLAGS)
_SEED: Final = flags.DEFINE_integer("seed", 0, "The seed of the weights.", lower_bound=0, flag_values=FLAGS)
_SHARDS: Final = flags.DEFINE_integer("shards", 1, "The number of safetensors files.", lower_bound=1, flag_values=FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Writes the checkpoint and prints its files."""
    sizes = LLAMA_PRESETS[_PRESET.value]
    if _NUM_LAYERS.value is not None:
        sizes = sizes._replace(layers=_NUM_LAYERS.value)
    begin = time.perf_counter()
    output, dtype = cli.user_path(_OUTPUT.value), as_dtype(_DTYPE.value)
    paths = write_random_llama(output, sizes, dtype, seed=_SEED.value, shards=_SHARDS.value)
    cli.say(f"{time.perf_counter() - begin:.1f} s")
    if _FORMAT.is_json:
        files = [{"file": path, "bytes": Path(path).stat().st_size} for path in paths]
        put_json({"output": output, "files": files})
    else:
        print("\n".join(paths))
