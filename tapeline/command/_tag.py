"""Tags tokens or spans of texts, such as names, with a bundle of a classifier of tokens.

tag --bundle DIR --text "Ada Lovelace lived in London." [--aggregation first]
tag --bundle DIR --texts FILE --format json
"""

from typing import Any, Final, get_args

from absl import flags

import tapeline
from tapeline.cli import table, user_path
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import texts_of
from tapeline.command._truncation import warn_of_counts
from tapeline.running import Aggregation

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "Text to tag.", flag_values=FLAGS)
_TEXTS: Final = flags.DEFINE_string("texts", None, "File with one text per line.", flag_values=FLAGS)
_AGGREGATION: Final = flags.DEFINE_enum(
    "aggregation",
    "simple",
    list(get_args(Aggregation)),
    "How tokens are merged into spans, as in transformers pipelines; none prints tokens.",
    flag_values=FLAGS,
)
_IGNORED: Final = flags.DEFINE_multi_string("ignored", ["O"], "Label to leave out.", flag_values=FLAGS)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate", True, "Truncate texts that exceed the model's length; false rejects them.", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the spans of each text: score, label, characters, and the words."""
    texts = texts_of("text", _TEXT.value, _TEXTS.value)
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        options: Any = {"aggregation": _AGGREGATION.value, "ignored": _IGNORED.value}
        tagged = model.tag(texts, **options, truncate=_TRUNCATE.value)
    warn_of_counts(texts, [one.tokens for one in tagged], [one.truncated for one in tagged])
    if _FORMAT.is_json:
        rows = [
            {
                "text": text,
                "tags": [
                    {"label": tag.label, "score": tag.score, "word": tag.word, "start": tag.start, "end": tag.end}
                    | ({} if tag.index is None else {"index": tag.index})
                    for tag in one.tags
                ],
                "tokens": one.tokens,
                "truncated": one.truncated,
            }
            for text, one in zip(texts, tagged, strict=True)
        ]
        put_json({"texts": rows})
        return
    lines = [
        [str(number), f"{tag.score:.4f}", tag.label, f"{tag.start}:{tag.end}", tag.word]
        for number, one in enumerate(tagged, 1)
        for tag in one.tags
    ]
    print("\n".join(table(lines, indent="")) if lines else "no tags")
