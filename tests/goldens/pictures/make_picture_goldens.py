"""Compute the golden file of pictures with transformers: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.pictures.make_picture_goldens

Pixels are those of the processors for Pillow ("slow" ones), given the path of a file, as ``load_image`` reads it.
"""

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import transformers
from transformers.image_utils import load_image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.goldens.pictures.cases import PICTURES, PROCESSORS
from tests.goldens.pictures.files import GOLDENS, picture_bytes, picture_digest

_CLASSES = {
    "ViTImageProcessor": ViTImageProcessorPil,
    "SiglipImageProcessor": SiglipImageProcessorPil,
    "CLIPImageProcessor": CLIPImageProcessorPil,
    "Gemma3ImageProcessor": Gemma3ImageProcessorPil,
    "GotOcr2ImageProcessor": GotOcr2ImageProcessorPil,
    "LlavaImageProcessor": LlavaImageProcessorPil,
    "SmolVLMImageProcessor": SmolVLMImageProcessorPil,
    "Idefics3ImageProcessor": Idefics3ImageProcessorPil,
}
_NAMES = ("image_processor_type", "feature_extractor_type")


def main() -> int:
    """Make the file."""
    transformers.logging.set_verbosity_error()
    processors = {name: _processor(settings) for name, settings in PROCESSORS.items()}
    head = {
        "script": "tests/goldens/pictures/make_picture_goldens.py",
        "versions": {
            "numpy": np.__version__,
            "pillow": PIL.__version__,
            "python": platform.python_version(),
            "transformers": transformers.__version__,
        },
        "settings": {name: json.loads(processor.to_json_string()) for name, processor in processors.items()},
    }
    made = {name: _pixels(picture_bytes(name, picture), processors) for name, picture in PICTURES.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in made.items())
    GOLDENS.write_text(f'{json.dumps(head)[:-1]},\n "pictures": {{\n{lines}\n }}\n}}\n')
    return 0


def _processor(settings: Any) -> Any:
    name = next(settings[field] for field in _NAMES if field in settings)
    kind = name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    return _CLASSES[kind](**{key: value for key, value in settings.items() if key not in _NAMES})


def _pixels(data: bytes, processors: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture"
        path.write_bytes(data)
        picture = np.asarray(load_image(str(path)))
        row: dict[str, Any] = {"picture": picture_digest(picture)}
        for name, processor in processors.items():
            row[name] = _processed_or_refused(processor, str(path))
    return row


def _processed_or_refused(processor: Any, path: str) -> Any:
    """None where a side would vanish, which Pillow refuses."""
    try:
        return _processed(processor, path)
    except ValueError as error:
        if "must be > 0" in str(error):
            return None
        raise


def _processed(processor: Any, path: str) -> Any:
    if isinstance(processor, GotOcr2ImageProcessorPil):  # InternVL's processor always asks for tiles
        made = processor(images=path, crop_to_patches=True, return_tensors="np")
        return [picture_digest(made["pixel_values"].astype(np.float32)), int(made["num_patches"][0])]
    if not isinstance(processor, SmolVLMImageProcessorPil | Idefics3ImageProcessorPil):
        return picture_digest(processor(images=path, return_tensors="np")["pixel_values"][0].astype(np.float32))
    made = processor(images=path, return_row_col_info=True, return_tensors="np")
    if not all(mask.all() for mask in made.get("pixel_attention_mask", [])):
        raise RuntimeError("a tile is padded")
    return [picture_digest(made["pixel_values"][0]), made["rows"][0][0], made["cols"][0][0]]


if __name__ == "__main__":
    sys.exit(main())
