"""Embeds sentences with a bundle, and says how alike they are.

embed --bundle DIR --text "One sentence." --text "Another one." [--output FILE.npy]
"""

from typing import Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from run_iree import DEVICES
from tapeline.cli import output_file, table, user_path

FLAGS: Final = flags.FlagValues()

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "A sentence, once for each.", flag_values=FLAGS)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "Write the vectors, f32 [sentences, D], to this .npy file.", flag_values=FLAGS
)
_DEVICE: Final = flags.DEFINE_enum("device", "local-task", list(DEVICES), "The device.", flag_values=FLAGS)


def main() -> None:
    """Prints the cosine of each sentence with each other one."""
    output = output_file("output", _OUTPUT.value)
    if not _TEXT.value:
        raise InputError("give a sentence with `text`, once for each")
    with tapeline.load(user_path(_BUNDLE.value), device=_DEVICE.value) as model:
        vectors = model.embed(_TEXT.value)
    if output:
        with output.open("wb") as file:  # given a name, NumPy would add .npy
            np.save(file, vectors)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T / (lengths * lengths.T)
    rows = [[*(f"{cosine:.4f}" for cosine in row), text] for row, text in zip(cosines, _TEXT.value, strict=True)]
    print("\n".join(table(rows, indent="")))
