"""Embeds sentences or pictures with a bundle, and says how alike they are.

embed --bundle DIR --text "One sentence." --text "Another one." [--output FILE.npy]
embed --bundle DIR --image one.jpg --image another.png [--output FILE.npy]
"""

from typing import Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import output_file, table, user_path
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags

FLAGS: Final = flags.FlagValues()

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "The bundle's directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "A sentence, once for each.", flag_values=FLAGS)
_IMAGE: Final = flags.DEFINE_multi_string(
    "image", [], "An image file, once for each; for a bundle of a vision model.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "Write the vectors, f32 [sentences or pictures, D], to this .npy file.", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the cosine of each sentence or picture with each other one."""
    output, titles = output_file("output", _OUTPUT.value), _TEXT.value or _IMAGE.value
    if bool(_TEXT.value) == bool(_IMAGE.value):
        raise InputError("give a sentence with `text`, once for each, or pictures with `image`")
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        vectors = model.embed_images([*map(user_path, _IMAGE.value)]) if _IMAGE.value else model.embed(_TEXT.value)
    if output:
        with output.open("wb") as file:  # given a name, NumPy would add .npy
            np.save(file, vectors)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T / (lengths * lengths.T)
    if _FORMAT.is_json:
        put_json({"inputs": titles, "vectors": vectors, "cosines": cosines})
        return
    rows = [[*(f"{cosine:.4f}" for cosine in row), title] for row, title in zip(cosines, titles, strict=True)]
    print("\n".join(table(rows, indent="")))
