"""Tiny models of pictures with stages or several results: Swin, SegFormer and YOLOS."""

from typing import Any, Final

from tests.goldens.encoders._case_types import EncoderCase

_SWIN: Final[dict[str, Any]] = {
    "architectures": ["SwinForImageClassification"],
    "depths": [2, 3],
    "embed_dim": 12,
    "hidden_act": "gelu",
    "id2label": {"0": "cat", "1": "dog", "2": "house"},
    "image_size": [20, 28],
    "label2id": {"cat": 0, "dog": 1, "house": 2},
    "layer_norm_eps": 1e-3,
    "mlp_ratio": 2.0,
    "model_type": "swin",
    "num_channels": 3,
    "num_heads": [2, 3],
    "patch_size": 2,
    "window_size": 4,
}
_SEGFORMER: Final[dict[str, Any]] = {
    "architectures": ["SegformerForSemanticSegmentation"],
    "decoder_hidden_size": 14,
    "depths": [2, 1, 1],
    "hidden_act": "gelu",
    "hidden_sizes": [8, 12, 15],
    "id2label": {"0": "sky", "1": "road", "2": "wall"},
    "image_size": 20,
    "label2id": {"sky": 0, "road": 1, "wall": 2},
    "mlp_ratios": [2, 3, 2],
    "model_type": "segformer",
    "num_attention_heads": [1, 2, 3],
    "num_channels": 3,
    "num_encoder_blocks": 3,
    "patch_sizes": [7, 3, 3],
    "sr_ratios": [3, 2, 1],
    "strides": [3, 2, 2],
}
PICTURE_CASES: Final = (
    EncoderCase(
        "swin_classifier",
        "windows that shift and do not fill the grid, an odd second grid without learned positions",
        _SWIN,
        seed=401,
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "relu"}),
    ),
    EncoderCase(
        "swin",
        "states, positions, a last grid that is one window",
        {
            **{name: value for name, value in _SWIN.items() if "label" not in name},
            "architectures": ["SwinModel"],
            "depths": [1, 2],
            "image_size": 16,
            "qkv_bias": False,
            "use_absolute_embeddings": True,
        },
        seed=402,
    ),
    EncoderCase(
        "yolos",
        "objects: tokens behind the patches, positions before every layer, a picture that is no square",
        {
            "architectures": ["YolosForObjectDetection"],
            "hidden_act": "gelu",
            "hidden_size": 24,
            "id2label": {"0": "cat", "1": "dog"},
            "image_size": [12, 16],
            "intermediate_size": 37,
            "label2id": {"cat": 0, "dog": 1},
            "layer_norm_eps": 1e-3,
            "model_type": "yolos",
            "num_attention_heads": 3,
            "num_channels": 3,
            "num_detection_tokens": 5,
            "num_hidden_layers": 3,
            "patch_size": 4,
            "use_mid_position_embeddings": True,
        },
        seed=403,
        must_matter=({"hidden_act": "relu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "segformer",
        "classes of places: keys of squares that do not fill the grid, grids of odd sides, a picture that is no square",
        _SEGFORMER,
        seed=406,
        picture=(20, 26),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "segformer_classifier",
        "a classifier of the last stage's mean",
        {**_SEGFORMER, "architectures": ["SegformerForImageClassification"]},
        seed=405,
    ),
)
