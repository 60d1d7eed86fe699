"""Reasons why ONNX ops have no adapter."""

from typing import Final

_STRINGS: Final = "strings: the op table has none"
_SEQUENCES: Final = "sequences and optional values: the op table has tensors only"
_RANDOM: Final = "random numbers: the op table has none"
_QUANTISED: Final = "ONNX's quantised formats: the op table has none of its own"
_IMAGES: Final = "image processing: not adapted"
_SIGNALS: Final = "signal processing: not adapted"
_RECURRENT: Final = "recurrent layers of before transformers: not adapted"
_TRAINING: Final = "optimisers of ai.onnx.preview.training: not adapted"
_TREES: Final = "classical machine learning (ai.onnx.ml): not adapted"
_ARCS: Final = "inverse trigonometric functions: the op table has none"

_BY_REASON: Final = {
    _STRINGS: "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer",
    _SEQUENCES: "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap "
    "SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement",
    _RANDOM: "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    _QUANTISED: "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul",
    _IMAGES: "AffineGrid Col2Im DeformConv GridSample ImageDecoder MaxUnpool Resize RoiAlign Upsample",
    _SIGNALS: "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    _RECURRENT: "GRU LSTM RNN",
    _ARCS: "Acos Asin Atan",
    _TRAINING: " ".join(f"ai.onnx.preview.training.{name}" for name in ("Adagrad", "Adam", "Gradient", "Momentum")),
    _TREES: " ".join(
        f"ai.onnx.ml.{name}"
        for name in ("ArrayFeatureExtractor", "Binarizer", "LabelEncoder", "TreeEnsemble", "Scaler", "Normalizer")
    ),
    "determinants: the op table has none": "Det",
}

REFUSED: Final = {kind: reason for reason, kinds in _BY_REASON.items() for kind in kinds.split()}
