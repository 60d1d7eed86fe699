"""Classifies texts or images with a bundle of a classifier: the model's labels, or labels of your own.

classify --bundle DIR --text "One text." --text "Another one." [--top_k 3]
classify --bundle DIR --texts FILE [--output FILE.npy]
classify --bundle DIR --image one.jpg --image another.png [--top_k 3]
classify --bundle DIR --text "A text." --label sports --label politics    (with a model of entailment, NLI)
classify --bundle DIR --image one.jpg --label "a cat" --label "a dog"    (with a CLIP or a SigLIP)
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from absl import flags

import tapeline
from lang_core import InputError
from tapeline.cli import output_file, table, user_path, whole_file
from tapeline.command._format_flags import FormatFlag, put_json
from tapeline.command._paths import check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.command._texts import texts_of
from tapeline.command._truncation import warn_of_truncation
from tapeline.running import HYPOTHESIS, PICTURE_HYPOTHESIS

FLAGS: Final = flags.FlagValues()
OPERANDS: Final = (("bundle",),)

_BUNDLE: Final = flags.DEFINE_string("bundle", None, "Bundle directory.", required=True, flag_values=FLAGS)
_TEXT: Final = flags.DEFINE_multi_string("text", [], "Text to classify.", flag_values=FLAGS)
_TEXTS: Final = flags.DEFINE_string("texts", None, "File with one text per line.", flag_values=FLAGS)
_IMAGE: Final = flags.DEFINE_multi_string(
    "image", [], "Image file to classify, for bundles of vision models.", flag_values=FLAGS
)
_PAIR: Final = flags.DEFINE_multi_string(
    "pair", [], "Second text of the pair, in the order of the texts.", flag_values=FLAGS
)
_LABEL: Final = flags.DEFINE_multi_string(
    "label",
    [],
    "Label of your own: zero-shot classification with a natural language inference (NLI) model, of images with a CLIP "
    "or a SigLIP.",
    flag_values=FLAGS,
)
_HYPOTHESIS: Final = flags.DEFINE_string(
    "hypothesis",
    None,
    "Zero-shot hypothesis; {} stands for the label. Default: 'This example is {}.', or 'This is a photo of {}.'",
    flag_values=FLAGS,
)
_MULTI_LABEL: Final = flags.DEFINE_bool(
    "multi_label", False, "Zero-shot: score each label independently.", flag_values=FLAGS
)
_TOP_K: Final = flags.DEFINE_integer(
    "top_k", 1, "Number of labels to print per text or image, best first.", lower_bound=1, flag_values=FLAGS
)
_TRUNCATE: Final = flags.DEFINE_bool(
    "truncate", True, "Truncate texts that exceed the model's length; false rejects them.", flag_values=FLAGS
)
_OUTPUT: Final = flags.DEFINE_string(
    "output", None, "File (.npy) for the scores, f32 [texts or images, labels].", flag_values=FLAGS
)
_PLACE: Final = define_place_flags(FLAGS)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the best labels of each text or image, with their scores."""
    output = output_file("output", _OUTPUT.value)
    if _IMAGE.value:
        _classify_images(output)
        return
    texts = texts_of("text", _TEXT.value, _TEXTS.value)
    if _LABEL.value and _PAIR.value:
        raise InputError("`pair`: labels of your own go with single texts: leave out `pair` or `label`")
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        if _LABEL.value:
            labels = list(_LABEL.value)
            zero_shot = {
                "labels": labels,
                "hypothesis": _HYPOTHESIS.value or HYPOTHESIS,
                "multi_label": _MULTI_LABEL.value,
            }
            results = model.classify(texts, **zero_shot, truncate=_TRUNCATE.value)
        else:
            labels = list(model.labels)
            results = model.classify(texts, pairs=_PAIR.value or None, truncate=_TRUNCATE.value)
    warn_of_truncation(texts, results)
    scores = np.asarray(results)
    _save(output, scores)
    if _FORMAT.is_json:
        rows = [
            {
                "text": text,
                "label": labels[row.argmax()],
                "scores": dict(zip(labels, row, strict=True)),
                "tokens": results.tokens[index],
                "truncated": results.truncated[index],
            }
            for index, (text, row) in enumerate(zip(texts, scores, strict=True))
        ]
        put_json({"labels": labels, "texts": rows})
        return
    _print_best(scores, labels, texts)


def _classify_images(output: Path | None) -> None:
    for flag in (_TEXT, _TEXTS, _PAIR):
        if flag.value:
            raise InputError(f"`{flag.name}`: images are classified alone: leave it out")
    own = list(_LABEL.value)
    zero_shot = {"labels": own, "hypothesis": _HYPOTHESIS.value or PICTURE_HYPOTHESIS} if own else {}
    check_readable("image", _IMAGE.value)
    with tapeline.load(user_path(_BUNDLE.value), **_PLACE.keywords()) as model:
        scores = model.classify_images([*map(user_path, _IMAGE.value)], **zero_shot)
        labels = own or list(model.labels)
    _save(output, scores)
    if not _FORMAT.is_json:
        _print_best(scores, labels, _IMAGE.value)
        return
    rows = [
        {"image": image, "label": labels[row.argmax()], "scores": dict(zip(labels, row, strict=True))}
        for image, row in zip(_IMAGE.value, scores, strict=True)
    ]
    put_json({"labels": labels, "images": rows})


def _save(output: Path | None, scores: np.ndarray) -> None:
    if output:
        with whole_file(output) as file:
            np.save(file, scores)


def _print_best(scores: np.ndarray, labels: Sequence[str], titles: Sequence[str]) -> None:
    order = np.argsort(-scores, axis=1, kind="stable")[:, : _TOP_K.value].tolist()
    lines = [
        [f"{scores[index, label]:.4f}", labels[label], title]
        for index, (title, best) in enumerate(zip(titles, order, strict=True))
        for label in best
    ]
    print("\n".join(table(lines, indent="")))
