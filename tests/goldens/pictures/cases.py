"""Pictures and image processors, as plain data: nothing here imports transformers.

``make_picture_goldens.py`` computed the file in ``data/`` from these, ``files.py`` draws the pictures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file.

    Attributes:
        mode: Pillow's mode, from which it is saved.
        width: pixels.
        height: pixels.
        form: Pillow's name of the file format.
        saved: options of saving.
        orientation: EXIF orientation, 1 to 8, or None.
        transparency: transparent index or colour, or the alpha of each index, or None.
        frames: number of frames.
    """

    mode: str
    width: int
    height: int
    form: str = "PNG"
    saved: Mapping[str, Any] = field(default_factory=dict)
    orientation: int | None = None
    transparency: int | bytes | tuple[int, ...] | None = None
    frames: int = 1


_JPEG: Final = {"quality": 90}

PICTURES: Final[Mapping[str, Picture]] = {
    "rgb": Picture("RGB", 61, 43),
    "rgb_square": Picture("RGB", 48, 48),
    "rgb_exact": Picture("RGB", 47, 33),
    "rgb_wide": Picture("RGB", 211, 17),
    "rgb_tall": Picture("RGB", 13, 190),
    "rgb_large": Picture("RGB", 333, 257),
    "rgb_one_pixel": Picture("RGB", 1, 1),
    "rgb_one_row": Picture("RGB", 37, 1),
    "rgb_one_column": Picture("RGB", 1, 53),
    "rgb_two": Picture("RGB", 2, 3),
    "grey": Picture("L", 45, 67),
    "grey_one_row": Picture("L", 31, 1),
    "grey_alpha": Picture("LA", 39, 28),
    "grey_alpha_tall": Picture("LA", 9, 70),
    "black_and_white": Picture("1", 51, 34),
    "palette": Picture("P", 44, 57),
    "palette_transparent": Picture("P", 57, 44, transparency=3),
    "palette_half_transparent": Picture("P", 36, 33, transparency=bytes(range(0, 256, 16))),
    "rgb_transparent": Picture("RGB", 28, 19, transparency=(72, 60, 131)),
    "grey_transparent": Picture("L", 25, 22, transparency=90),
    "palette_transparent_gif": Picture("P", 35, 50, "GIF", transparency=5),
    "palette_one_column": Picture("P", 1, 29),
    "rgba": Picture("RGBA", 53, 38),
    "rgba_one_pixel": Picture("RGBA", 1, 1),
    "rgba_wide": Picture("RGBA", 120, 7),
    "sixteen_bits": Picture("I;16", 41, 55),
    "sixteen_bits_one_row": Picture("I;16", 23, 1),
    "sixteen_bits_tiff": Picture("I;16", 33, 26, "TIFF"),
    "integers_tiff": Picture("I", 27, 32, "TIFF"),
    "floats_tiff": Picture("F", 34, 21, "TIFF"),
    "cmyk_jpeg": Picture("CMYK", 62, 49, "JPEG", _JPEG),
    "cmyk_tiff": Picture("CMYK", 29, 35, "TIFF"),
    "rgb_jpeg": Picture("RGB", 77, 58, "JPEG", _JPEG),
    "rgb_jpeg_halved": Picture("RGB", 75, 59, "JPEG", {"quality": 40, "subsampling": 2}),
    "rgb_jpeg_progressive": Picture("RGB", 83, 64, "JPEG", {"quality": 75, "progressive": True}),
    "grey_jpeg": Picture("L", 56, 71, "JPEG", _JPEG),
    "lab_tiff": Picture("LAB", 24, 31, "TIFF"),
    "ycbcr_tiff": Picture("YCbCr", 36, 25, "TIFF"),
    "rgba_webp": Picture("RGBA", 46, 35, "WEBP", {"lossless": True}),
    "rgb_webp": Picture("RGB", 66, 51, "WEBP", {"quality": 80}),
    "palette_gif": Picture("P", 42, 39, "GIF"),
    "palette_gif_frames": Picture("P", 38, 47, "GIF", frames=3),
    "rgb_bmp": Picture("RGB", 43, 37, "BMP"),
    "grey_ppm": Picture("L", 19, 63, "PPM"),
    "rgb_ppm": Picture("RGB", 64, 20, "PPM"),
    "turned_1": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=1),
    "turned_2": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=2),
    "turned_3": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=3),
    "turned_4": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=4),
    "turned_5": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=5),
    "turned_6": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=6),
    "turned_7": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=7),
    "turned_8": Picture("RGB", 50, 31, "JPEG", _JPEG, orientation=8),
    "turned_png": Picture("RGBA", 40, 26, orientation=6),
    "turned_grey_webp": Picture("RGB", 30, 45, "WEBP", {"lossless": True}, orientation=8),
    "turned_one_row": Picture("L", 21, 1, orientation=5),
}

_SMALL: Final = {"height": 33, "width": 47}

PROCESSORS: Final[Mapping[str, Mapping[str, Any]]] = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": _SMALL},
    "vit_number": {"image_processor_type": "ViTImageProcessor", "size": 40, "do_normalize": False},
    "vit_nearest": {"image_processor_type": "ViTImageProcessor", "size": [20, 31], "resample": 0, "do_rescale": False},
    "vit_box": {"image_processor_type": "ViTImageProcessor", "size": _SMALL, "resample": 4, "rescale_factor": 0.01},
    "vit_raw": {"image_processor_type": "ViTImageProcessor", "do_resize": False},
    "vit_cropped": {
        "image_processor_type": "ViTImageProcessor",
        "size": {"shortest_edge": 30, "longest_edge": 55},
        "do_center_crop": True,
        "crop_size": {"height": 29, "width": 36},
        "resample": 5,
        "image_mean": 0.3,
        "image_std": 0.7,
    },
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32}},
    "siglip_fast": {"image_processor_type": "SiglipImageProcessorFast", "size": {"max_height": 35, "max_width": 41}},
    "clip": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 38}, "crop_size": 35},
    "clip_old": {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": 40,
        "crop_size": {"height": 30, "width": 51},
    },
    "deit": {"image_processor_type": "DeiTImageProcessor", "size": 41, "crop_size": {"height": 30, "width": 44}},
    "beit": {"image_processor_type": "BeitImageProcessor", "size": {"height": 38, "width": 27}},
    "bit": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "crop_size": 33},
    "gemma3": {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 29, "width": 37}},
    "llava": {
        "image_processor_type": "LlavaImageProcessor",
        "size": {"shortest_edge": 31},
        "crop_size": {"height": 33, "width": 28},
    },
    "internvl": {
        "image_processor_type": "GotOcr2ImageProcessor",
        "size": {"height": 24, "width": 20},
        "max_patches": 7,
    },
    "internvl_several": {
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "crop_to_patches": True,
        "min_patches": 3,
        "max_patches": 4,
        "size": {"height": 22, "width": 22},
    },
    "llava_next": {
        "crop_size": {"height": 28, "width": 28},
        "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [28, 84], [112, 28]],
        "image_processor_type": "LlavaNextImageProcessor",
        "size": {"shortest_edge": 28},
    },
    "llava_onevision": {
        "image_grid_pinpoints": [[26, 52], [52, 26], [52, 52], [78, 26], [26, 104]],
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.4, 0.5],
        "size": {"height": 26, "width": 26},
    },
    "pixtral": {
        "image_processor_type": "PixtralImageProcessor",
        "patch_size": {"height": 7, "width": 7},
        "size": {"longest_edge": 45},
    },
    "pixtral_box": {
        "image_processor_type": "PixtralImageProcessorFast",
        "patch_size": {"height": 7, "width": 7},
        "size": {"height": 30, "width": 100},
    },
    "qwen2_vl": {
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"longest_edge": 9 * 28 * 28, "shortest_edge": 2 * 28 * 28},
    },
    "qwen3_vl": {
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "image_std": [0.5, 0.5, 0.5],
        "max_pixels": 5000,
        "merge_size": 3,
        "min_pixels": 1000,
        "patch_size": 8,
        "temporal_patch_size": 2,
    },
    "smolvlm": {
        "image_processor_type": "SmolVLMImageProcessor",
        "size": {"longest_edge": 60},
        "max_image_size": {"longest_edge": 24},
    },
    "smolvlm_whole": {
        "image_processor_type": "SmolVLMImageProcessor",
        "size": {"longest_edge": 60},
        "max_image_size": {"longest_edge": 24},
        "do_image_splitting": False,
    },
    "idefics3": {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"height": 40, "width": 70},
        "max_image_size": {"longest_edge": 32},
        "resample": 3,
        "do_pad": False,
    },
    "idefics3_unresized": {
        "image_processor_type": "Idefics3ImageProcessor",
        "do_resize": False,
        "max_image_size": {"longest_edge": 64},
    },
}
"""Settings of processors, as files may have them."""

CLASSIFIERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "vit_classifier": {"image_processor_type": "ViTImageProcessor", "size": {"height": 9, "width": 9}},
    "dinov2_classifier": {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 17},
        "crop_size": {"height": 15, "width": 21},
    },
    "deit_classifier": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 11, "width": 14},
        "crop_size": {"height": 8, "width": 12},
    },
}
"""Encoders of ``tests/goldens/encoders`` that classify pictures, and their settings of processors."""

CLASSIFIED: Final = ("rgb", "turned_6", "cmyk_jpeg", "rgb_tall")
"""Pictures that are classified."""
