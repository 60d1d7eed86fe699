"""Fills the masks of texts with a bundle of a masked language model.

fill --bundle DIR --text "Paris is the [MASK] of France." [--top_k 5]
fill --bundle DIR --text "Paris is [MASK]." --target big --target small
"""

from typing import Final

from absl import flags

import tapeline
from tapeline.cli import table, user_path
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import texts_of

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string(
    "text", [], "Text with mask tokens, such as [MASK] or <mask>.", flag_values=FLAGS
)
_TEXTS: Final = flags.DEFINE_string("texts", None, "File with one text per line.", flag_values=FLAGS)
_TOP_K: Final = flags.DEFINE_integer(
    "top_k", 5, "Number of tokens to print per mask, best first.", lower_bound=1, flag_values=FLAGS
)
_TARGET: Final = flags.DEFINE_multi_string(
    "target", [], "Token to choose among. Default: the whole vocabulary.", flag_values=FLAGS
)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate",
    False,
    "Truncate texts that exceed the model's length; by default they are rejected.",
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the best tokens of each mask: score, token, and the text with it."""
    texts = texts_of("text", _TEXT.value, _TEXTS.value)
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        filled = model.fill(texts, top_k=_TOP_K.value, targets=_TARGET.value, truncate=_TRUNCATE.value)
    if _FORMAT.is_json:
        rows = [
            {
                "text": text,
                "masks": [
                    [
                        {"token": one.token, "token_text": one.token_text, "score": one.score, "text": one.text}
                        for one in mask
                    ]
                    for mask in masks
                ],
            }
            for text, masks in zip(texts, filled, strict=True)
        ]
        put_json({"texts": rows})
        return
    lines = [[f"{one.score:.4f}", repr(one.token_text), one.text] for masks in filled for mask in masks for one in mask]
    print("\n".join(table(lines, indent="")))
