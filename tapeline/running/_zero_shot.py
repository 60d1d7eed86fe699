"""Classes of pictures by labels of the caller, with a bundle of a CLIP or a SigLIP."""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from lang_core import InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.media.images import DEFAULT_IMAGE_LIMITS, ImageLimits
from tapeline.running._labels import logistic, softmax
from tapeline.running._pictures import ImageEmbedder, ImageSource
from tapeline.text import TextEncoder, Tokenizer
from transformer_core import CONFIG_FILE, ConfigFields, config_fields

PICTURE_HYPOTHESIS: Final = "This is a photo of {}."
"""Text of a label, as in transformers' zero-shot classification of pictures."""

_TEXTS: Final = "encode_text"
_SCORES: Final = "score_pairs"
_SIGLIP: Final = "siglip"
_SIGLIP_TOKENS: Final = 64
_AGAIN: Final = "fetch the model's config.json again, and export"


class ZeroShotClassifier:
    """Bundle of a pair of a vision model and a text model, in a session."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        """Checks that the bundle compares pictures and texts.

        Raises:
            InputError: it does not.
            ConfigError: its files are damaged.
        """
        points = {point.name: point for point in bundle.config.entry_points}
        missing = [name for name in ("encode_image", _TEXTS, _SCORES) if name not in points]
        if missing:
            raise InputError(
                f"{bundle.path} has no entry point {', '.join(missing)}: labels of your own need a bundle of a CLIP or "
                "a SigLIP with encode_image, encode_text and score_pairs: export it again"
            )
        tokenizer = Tokenizer.load(bundle.path)
        self._images: Final = ImageEmbedder(bundle, session)
        self._batch, self._tokens = points[_TEXTS].arguments[0].spec.shape
        self._encode: Final = session.function(_TEXTS)
        self._score: Final = session.function(_SCORES)
        self._vocabulary: Final = int(bundle.config.model["vocabulary"])
        kind = config_fields(str(bundle.path / CONFIG_FILE), _AGAIN).values.get("model_type")
        self._is_siglip: Final = _SIGLIP in str(kind)
        fields = _tokenizer_fields(bundle.path)
        name = str(fields.values.get("tokenizer_class", _SIGLIP_TOKENIZER if kind == _SIGLIP else "")).removesuffix(
            "Fast"
        )
        self._strips: Final = name == _SIGLIP_TOKENIZER  # which takes no punctuation
        self._from_left: Final = fields.choice("padding_side", _SIDES, _SIDES[name == _SIGLIP2_TOKENIZER]) == _SIDES[1]
        if self._is_siglip:
            _check_padding(fields)
        elif self._from_left:
            fields.refuse("padding_side", "right: behind padding a text has other positions")
        self._path: Final = bundle.path
        most = min(self._tokens, _SIGLIP_TOKENS) if self._is_siglip else None
        self._encoder: Final = TextEncoder(tokenizer, most, lower_case=name == _SIGLIP2_TOKENIZER)
        self._pad: Final = self._encoder.id_of(tokenizer.tokens.get("pad_token")) or 0

    def __call__(
        self,
        images: Sequence[ImageSource],
        labels: Sequence[str],
        hypothesis: str = PICTURE_HYPOTHESIS,
        limits: ImageLimits = DEFAULT_IMAGE_LIMITS,
        *,
        raw: bool = False,
    ) -> np.ndarray:
        """Returns the scores f32 [images, labels]; logits if ``raw``.

        Args:
            images: the pictures.
            labels: the labels, one or more.
            hypothesis: text with ``{}`` in the place of a label.
            limits: bounds of each picture.
            raw: whether logits are returned as they are.

        Raises:
            InputError: there are no labels or pictures, the hypothesis has no place for a label, or a text is too long.
        """
        if not labels:
            raise InputError("labels: give one or more")
        if "{}" not in hypothesis:
            raise InputError(f"hypothesis: expected a text with {{}} in the place of a label; found {hypothesis!r}")
        texts = np.concatenate(
            [self._embedded(labels[start : start + self._batch], hypothesis) for start in self._starts(labels)]
        )
        vectors = self._images(images, limits)
        rows = [self._row(vectors[start : start + self._batch], texts) for start in self._starts(vectors)]
        logits = np.concatenate(rows)
        if raw:
            return logits
        return logistic(logits) if self._is_siglip else softmax(logits)

    def _starts(self, rows: Sequence[object] | np.ndarray) -> range:
        return range(0, len(rows), self._batch)

    def _embedded(self, labels: Sequence[str], hypothesis: str) -> np.ndarray:
        """Returns the vectors f32 [labels, D] of up to B labels."""
        ids = np.full((self._batch, self._tokens), self._pad, np.int32)
        for row, label in zip(ids, labels, strict=False):
            text = hypothesis.replace("{}", label)
            encoded = self._encoder.encode(_canonical(text) if self._strips else text, self._vocabulary).ids
            if len(encoded) > self._tokens:
                raise InputError(
                    f"labels: {text[:40]!r} has {len(encoded)} tokens, the bundle takes {self._tokens}: shorten it"
                )
            place = slice(self._tokens - len(encoded), None) if self._from_left else slice(len(encoded))
            row[place] = encoded
        return self._encode(ids)[0].numpy()[: len(labels)]

    def _row(self, vectors: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """Returns the logits f32 [images, labels] of up to B pictures."""
        parts = [self._scored(vectors, texts[start : start + self._batch]) for start in self._starts(texts)]
        return np.concatenate(parts, 1)

    def _scored(self, vectors: np.ndarray, texts: np.ndarray) -> np.ndarray:
        images, others = (np.zeros((self._batch, vectors.shape[1]), np.float32) for _ in range(2))
        images[: len(vectors)], others[: len(texts)] = vectors, texts
        return self._score(images, others)[0].numpy()[: len(vectors), : len(texts)]


_SIDES: Final = ("right", "left")
_SIGLIP_TOKENIZER: Final = "SiglipTokenizer"
_SIGLIP2_TOKENIZER: Final = "Siglip2Tokenizer"


def _tokenizer_fields(directory: Path) -> ConfigFields:
    path = directory / "tokenizer_config.json"
    return config_fields(str(path), _AGAIN) if path.exists() else ConfigFields({}, str(path))


def _check_padding(fields: ConfigFields) -> None:
    """Checks that the padding of texts is not masked, as in the training of SigLIP.

    Raises:
        ConfigError: the tokenizer's settings mask it.
    """
    names = fields.values.get("model_input_names")
    if not isinstance(names, list) or "attention_mask" in names:
        fields.refuse("model_input_names", "[input_ids]: SigLIP's texts are padded, and their padding is not masked")


_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


def _canonical(text: str) -> str:
    """Returns a text as SigLIP's tokenizer takes it: lower case, without punctuation.

    >>> _canonical("This is a photo of 2  Cats.")
    'this is a photo of 2 cats'
    """
    return re.sub(r"\s+", " ", text.lower().translate(_PUNCTUATION)).strip()
