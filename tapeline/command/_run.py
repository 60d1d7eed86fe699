"""Runs one entry point of a bundle on arrays.

run --bundle DIR --entry_point forward --input token_ids=FILE.npy --output_dir DIR
run --bundle DIR --input pixel_values=cat.jpg --output_dir DIR
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from absl import flags

import tapeline
from tapeline.cli import TerminalProgress, user_path
from tapeline.command._dump_flags import define_dump_flags
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.running import read_inputs, write_results

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_ENTRY_POINT: Final = flags.DEFINE_string("entry_point", "forward", "Entry point to run.", flag_values=FLAGS)
_INPUT: Final = flags.DEFINE_multi_string(
    "input", [], "Input as NAME=FILE.npy, one per argument; pixel_values=FILE reads an image file.", flag_values=FLAGS
)
_OUTPUT_DIR: Final = flags.DEFINE_string(
    "output_dir",
    None,
    "Output directory: each result is written to <result name>.npy.",
    required=True,
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)
_DUMP: Final = define_dump_flags(FLAGS)


def main() -> None:
    """Runs the entry point and prints the files that it wrote."""
    bundle = tapeline.Bundle(user_path(_BUNDLE.value))
    entry_point = bundle.entry_point(_ENTRY_POINT.value)
    values = read_inputs(entry_point, _INPUT.value, bundle.path)
    inputs = dict(zip([argument.name for argument in entry_point.arguments], values, strict=True))
    with (
        TerminalProgress() as progress,
        tapeline.load(bundle, **_PLACE.keywords(), dump=_DUMP.options(), progress=progress) as model,
    ):
        results = model.run(entry_point.name, inputs)
    paths = write_results(user_path(_OUTPUT_DIR.value), results)
    if _FORMAT.is_json:
        put_json({"entry_point": entry_point.name, "results": list(map(_facts, results, results.values(), paths))})
    else:
        print("\n".join(map(str, paths)))


def _facts(name: str, result: np.ndarray, path: Path) -> dict[str, Any]:
    return {"name": name, "file": path, "dtype": str(result.dtype), "shape": result.shape}
