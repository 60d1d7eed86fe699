"""Compute the golden files of pictures with transformers: run by hand, outside Bazel (see ../README.md).

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
from transformers.models.beit.image_processing_pil_beit import BeitImageProcessorPil
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.pictures.cases import CLASSIFIED, CLASSIFIERS, PICTURES, PROCESSORS
from tests.goldens.pictures.files import CLASSES, GOLDENS, picture_bytes, picture_digest

_CLASSES = {
    "ViTImageProcessor": ViTImageProcessorPil,
    "SiglipImageProcessor": SiglipImageProcessorPil,
    "CLIPImageProcessor": CLIPImageProcessorPil,
    "Gemma3ImageProcessor": Gemma3ImageProcessorPil,
    "BeitImageProcessor": BeitImageProcessorPil,
    "BitImageProcessor": BitImageProcessorPil,
    "DeiTImageProcessor": DeiTImageProcessorPil,
    "GotOcr2ImageProcessor": GotOcr2ImageProcessorPil,
    "LlavaImageProcessor": LlavaImageProcessorPil,
    "LlavaNextImageProcessor": LlavaNextImageProcessorPil,
    "LlavaOnevisionImageProcessor": LlavaOnevisionImageProcessorPil,
    "PixtralImageProcessor": PixtralImageProcessorPil,
    "Qwen2VLImageProcessor": Qwen2VLImageProcessorPil,
    "SmolVLMImageProcessor": SmolVLMImageProcessorPil,
    "Idefics3ImageProcessor": Idefics3ImageProcessorPil,
}
_NAMES = ("image_processor_type", "feature_extractor_type")


def main() -> int:
    """Make the files."""
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
    CLASSES.write_text(json.dumps({name: _classes(name) for name in CLASSIFIERS}, indent=1) + "\n")
    return 0


def _classes(name: str) -> dict[str, dict[str, float]]:
    """Scores by label of each picture, by transformers' pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        write_encoder_checkpoint(Path(folder), ENCODER_CASES[name])
        model = transformers.AutoModelForImageClassification.from_pretrained(folder, attn_implementation="eager")
        classify = transformers.pipeline("image-classification", model, image_processor=_processor(CLASSIFIERS[name]))
        rows = {}
        for picture in CLASSIFIED:
            (Path(folder) / "picture").write_bytes(picture_bytes(picture, PICTURES[picture]))
            rows[picture] = {row["label"]: row["score"] for row in classify(str(Path(folder) / "picture"), top_k=99)}
        return rows


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
        if any(text in str(error) for text in ("must be > 0", "height=0", "width=0")):
            return None
        raise


def _processed(processor: Any, path: str) -> Any:
    if isinstance(processor, GotOcr2ImageProcessorPil):  # InternVL's processor always asks for tiles
        made = processor(images=path, crop_to_patches=True, return_tensors="np")
        return [picture_digest(made["pixel_values"].astype(np.float32)), int(made["num_patches"][0])]
    if isinstance(processor, Qwen2VLImageProcessorPil):  # frames of an image are the same: the first one of each patch
        made = processor(images=path, return_tensors="np")
        _, height, width = made["image_grid_thw"][0].tolist()
        side, frames = processor.patch_size, processor.temporal_patch_size
        patches = made["pixel_values"].reshape(height * width, 3, frames, side, side)
        return [picture_digest(np.ascontiguousarray(patches[:, :, 0].reshape(height * width, -1))), height, width]
    if not isinstance(processor, SmolVLMImageProcessorPil | Idefics3ImageProcessorPil):
        return picture_digest(processor(images=path, return_tensors="np")["pixel_values"][0].astype(np.float32))
    made = processor(images=path, return_row_col_info=True, return_tensors="np")
    if not all(mask.all() for mask in made.get("pixel_attention_mask", [])):
        raise RuntimeError("a tile is padded")
    return [picture_digest(made["pixel_values"][0]), made["rows"][0][0], made["cols"][0][0]]


if __name__ == "__main__":
    sys.exit(main())
