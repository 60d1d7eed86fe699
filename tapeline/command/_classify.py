"""Classifies texts with a bundle of a classifier: the model's labels, or labels of your own.

classify --bundle DIR --text "One text." --text "Another one." [--top_k 3]
classify --bundle DIR --texts FILE [--output FILE.npy]
classify --bundle DIR --text "A text." --label sports --label politics    (with a model of entailment, NLI)
"""

from typing import Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import output_file, table, user_path, whole_file
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import texts_of
from tapeline.command._truncation import warn_of_truncation
from tapeline.running import HYPOTHESIS

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "Text to classify.", flag_values=FLAGS)
_TEXTS: Final = flags.DEFINE_string("texts", None, "File with one text per line.", flag_values=FLAGS)
_PAIR: Final = flags.DEFINE_multi_string(
    "pair", [], "Second text of the pair, in the order of the texts.", flag_values=FLAGS
)
_LABEL: Final = flags.DEFINE_multi_string(
    "label",
    [],
    "Label of your own: zero-shot classification with a natural language inference (NLI) model.",
    flag_values=FLAGS,
)
_HYPOTHESIS: Final = flags.DEFINE_string(
    "hypothesis", HYPOTHESIS, "Zero-shot hypothesis; {} stands for the label.", flag_values=FLAGS
)
_MULTI_LABEL: Final = flags.DEFINE_bool(
    "multi_label", False, "Zero-shot: score each label independently.", flag_values=FLAGS
)
_TOP_K: Final = flags.DEFINE_integer(
    "top_k", 1, "Number of labels to print per text, best first.", lower_bound=1, flag_values=FLAGS
)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate", True, "Truncate texts that exceed the model's length; false rejects them.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "File (.npy) for the scores, f32 [texts, labels].", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the best labels of each text, with their scores."""
    output, texts = output_file("output", _OUTPUT.value), texts_of("text", _TEXT.value, _TEXTS.value)
    if _LABEL.value and _PAIR.value:
        raise InputError("`pair`: labels of your own go with single texts: leave out `pair` or `label`")
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        if _LABEL.value:
            labels = list(_LABEL.value)
            zero_shot = {"labels": labels, "hypothesis": _HYPOTHESIS.value, "multi_label": _MULTI_LABEL.value}
            results = model.classify(texts, **zero_shot, truncate=_TRUNCATE.value)
        else:
            labels = list(model.labels)
            results = model.classify(texts, pairs=_PAIR.value or None, truncate=_TRUNCATE.value)
    warn_of_truncation(texts, results)
    scores = np.asarray(results)
    if output:
        with whole_file(output) as file:
            np.save(file, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : _TOP_K.value].tolist()
    if _FORMAT.is_json:
        rows = [
            {
                "text": text,
                "label": labels[best[0]],
                "scores": dict(zip(labels, row, strict=True)),
                "tokens": results.tokens[index],
                "truncated": results.truncated[index],
            }
            for index, (text, row, best) in enumerate(zip(texts, scores, order, strict=True))
        ]
        put_json({"labels": labels, "texts": rows})
        return
    lines = [
        [f"{scores[index, label]:.4f}", labels[label], text]
        for index, (text, best) in enumerate(zip(texts, order, strict=True))
        for label in best
    ]
    print("\n".join(table(lines, indent="")))
