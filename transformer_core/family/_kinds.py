"""Kinds of models, and near names of an architecture among those of its kind."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lang_core import any_of

WHERE: Final = "docs/models.md lists supported models, docs/extending.md explains how to add a family"
"""End of a message about a model that is not supported."""

_MOST: Final = 5
_NEAR: Final = 0.7
_TYPO: Final = 0.95  # of a whole name: a letter of a name with its head
_SHORT_TYPO: Final = 0.8  # of a model type
_SAME_START: Final = 4  # letters that names of one maker's models share
_HEADS: Final = re.compile(
    r"(?:LMHead|TextModel|EncoderModel|VisionModel|PreTrained|Encoder|For[A-Z]\w*)?(?:Model|LM)?$|For[A-Z]\w*$"
)
# The first pattern that matches a name decides.
_BY_NAME: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "audio",
        re.compile(
            r"whisper|wav2?vec|wavlm|hubert|speech|audio|^AST(?=Model|For)|asr|voxtral|moonshine|parakeet|musicgen|ctc$",
            re.I,
        ),
    ),
    (
        "vision",
        re.compile(
            r"clip|siglip|ForImageClassification|VisionModel|dino|^vit|swin|beit|convnext|resnet|detr|segformer|yolos|mmproj",
            re.I,
        ),
    ),
    (
        "vision-language",
        re.compile(
            r"VL|vl(?:moe)?$|vision|vlm|llava|paligemma|idefics|internvl|pixtral|mllama|florence|kosmos|ImageText"
        ),
    ),
    ("encoder", re.compile(r"^NeoBERT|NextSentence")),
    ("decoder", re.compile(r"ForCausalLM|LMHead|DoubleHeads|\bgpt", re.I)),
    ("encoder", re.compile(r"t5-?encoder|EncoderModel|bert|embed|ForMasked|Classification|QuestionAnswering", re.I)),
    ("encoder-decoder", re.compile(r"t5|bart|blender|pegasus|marian|^m2m|prophetnet|seq2seq|nllb", re.I)),
)


def kind_of(name: str, values: Mapping[str, Any] | None = None, default: str | None = None) -> str | None:
    """Returns the kind of the models that a name stands for.

    Args:
        name: name of an architecture or a model type.
        values: fields of config.json, if there is one.
        default: kind if neither says it.

    Returns:
        ``decoder``, ``encoder``, ``encoder-decoder``, ``vision``, ``vision-language``, ``audio``; or ``default``.

    >>> kind_of("FalconForCausalLM"), kind_of("Qwen2VLForConditionalGeneration"), kind_of("BartModel")
    ('decoder', 'vision-language', 'encoder-decoder')
    """
    values = values or {}
    named = next((kind for kind, pattern in _BY_NAME if pattern.search(name)), None)
    if "audio_config" in values and "vision_config" not in values:
        return "audio"
    if "vision_config" in values and named != "vision":
        return "vision-language"
    if named is not None:
        return named
    if values.get("is_encoder_decoder"):
        return "encoder-decoder"
    if "patch_size" in values and "vocab_size" not in values:
        return "vision"
    if name.endswith("ForConditionalGeneration"):
        return "vision-language" if "text_config" in values or not values else "encoder-decoder"
    return "encoder" if name.endswith("Model") else default


_LONGEST_NAME: Final = 200  # letters that are compared; a file can give a name of megabytes


def near_of_kind(name: str, kind: str | None, known: Iterable[tuple[str, str | None]]) -> str:
    """Returns a hint at near names of the same kind, five at most; empty if there is none.

    Args:
        name: name of the unsupported feature.
        kind: its kind; None takes only names that are all but the same.
        known: supported names with their kinds.

    >>> known = [("FalconH1ForCausalLM", "decoder"), ("OlmoForCausalLM", "decoder")]
    >>> near_of_kind("FalconForCausalLM", "decoder", known)
    "; did you mean 'FalconH1ForCausalLM'?"
    """
    name = name[:_LONGEST_NAME]
    stem = _stem(name)
    ranked: dict[str, float] = {}
    for other, other_kind in known:
        ratio, whole = _ratio(stem, _stem(other)), _ratio(name, other)
        starts = _stem(other)[:_SAME_START] == stem[:_SAME_START]
        alike = whole >= _SHORT_TYPO if kind is None else ratio >= _NEAR or starts or whole >= _TYPO
        if alike and kind in (None, other_kind):
            ranked[other] = max(ratio, whole)
    names = sorted(ranked, key=lambda other: -ranked[other])[:_MOST]
    return f"; did you mean {any_of(map(repr, names))}?" if names else ""


def _stem(name: str) -> str:
    """Returns a name without its head, in lower case, which identifies the architecture."""
    return (_HEADS.sub("", name, count=1) or name).lower()


def _ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
