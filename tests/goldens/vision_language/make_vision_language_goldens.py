"""Compute the golden files of decoders that see pictures with transformers: run by hand (see ../README.md).

    python -m tests.goldens.vision_language.make_vision_language_goldens [--only llava internvl]

Pixels come from the processors for Pillow, prompts from the processor of each family, of SmolVLM from Idefics 3's,
whose text is the same. Those of families that see videos need torchvision. Each case is checked while it is made:
choices are clear, pictures matter, and so does each change in ``must_matter``.
"""

import json
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from tests.goldens.vision_language.cases import CASES, Turn, VisionLanguageCase
from tests.goldens.vision_language.files import DATA, turn_picture, write_vision_language_checkpoint

_IMAGE_PROCESSORS: dict[str, Any] = {
    "CLIPImageProcessor": CLIPImageProcessorPil,
    "GotOcr2ImageProcessor": GotOcr2ImageProcessorPil,
    "Gemma3ImageProcessor": Gemma3ImageProcessorPil,
    "Idefics3ImageProcessor": Idefics3ImageProcessorPil,
    "LlavaImageProcessor": LlavaImageProcessorPil,
    "LlavaNextImageProcessor": LlavaNextImageProcessorPil,
    "LlavaOnevisionImageProcessor": LlavaOnevisionImageProcessorPil,
    "PixtralImageProcessor": PixtralImageProcessorPil,
    "Qwen2VLImageProcessor": Qwen2VLImageProcessorPil,
    "SmolVLMImageProcessor": SmolVLMImageProcessorPil,
}
_VISIBLE = 1e-2
_CLEAR_MARGIN = 1e-3
_DISTINCT_TOKENS = 5
Arrays = dict[str, np.ndarray]
Shapes = dict[str, list[int]]


def main() -> int:
    """Make the files; a case that fails a check raises."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    DATA.mkdir(exist_ok=True)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    only = sys.argv[sys.argv.index("--only") + 1 :] if "--only" in sys.argv else list(CASES)
    known = json.loads((DATA / "manifest.json").read_text())["cases"] if (DATA / "manifest.json").exists() else {}
    made = {name: _made(case) if name in only else known[name] for name, case in CASES.items()}
    script = "tests/goldens/vision_language/make_vision_language_goldens.py"
    manifest = {"script": script, "versions": versions, "cases": made}
    (DATA / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return 0


def _made(case: VisionLanguageCase) -> dict[str, Any]:
    shapes = _shapes(case)
    model, processor = _load(case, shapes, case.config)
    turns = [_answered(model, processor, turn, case.steps) for turn in case.turns]
    arrays = {f"{place}.{key}": value for place, turn in enumerate(turns) for key, value in turn.items()}
    for place, turn in enumerate(turns):
        ordered = np.sort(turn["logits"], axis=-1)
        margin, distinct = (ordered[:, -1] - ordered[:, -2]).min(), len(set(turn["tokens"].tolist()))
        print(f"{case.name} {place}: {len(turn['prompt'])} tokens, margin {margin:.2g}, {turn['tokens'].tolist()}")
        if margin < _CLEAR_MARGIN or distinct < _DISTINCT_TOKENS:
            raise RuntimeError(f"{case.name}: take another seed")
    _check_pictures(model, processor, case.turns[0], turns[0])
    for change in case.must_matter:
        other, _ = _load(case, shapes, {**case.config, **change}, strict=False)
        moved = np.abs(
            _answered(other, processor, case.turns[0], case.steps)["logits"][0] - turns[0]["logits"][0]
        ).max()
        if moved < _VISIBLE:
            raise RuntimeError(f"{case.name}: {change} moves the logits by {moved} only")
    np.savez_compressed(DATA / f"{case.name}.npz", **arrays)
    return {"case": case.digest(), "shapes": shapes}


def _class(case: VisionLanguageCase) -> Any:
    return getattr(transformers, case.config["architectures"][0])


def _shapes(case: VisionLanguageCase) -> Shapes:
    """Keys and shapes that transformers stores of such a model."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(case.config))
        _class(case)(transformers.AutoConfig.from_pretrained(name)).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            return {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118


def _load(case: VisionLanguageCase, shapes: Shapes, config: Mapping[str, Any], *, strict: bool = True) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write_vision_language_checkpoint(Path(folder), case, shapes, config)
        model, info = _class(case).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    problems = {kind: keys for kind, keys in info.items() if keys}
    if problems and strict:
        raise RuntimeError(f"{case.name}: transformers does not take the checkpoint as it is: {problems}")
    settings = {key: value for key, value in case.preprocessor.items() if key != "image_processor_type"}
    images = _IMAGE_PROCESSORS[case.preprocessor["image_processor_type"]](**settings)
    processor = _PROCESSORS[case.processor["processor_class"]](images, tokenizer, case)
    return model.eval(), processor


def _name_tokens(tokenizer: Any, names: Mapping[str, str]) -> None:
    """Sets special tokens that tokenizers of a family have as attributes."""
    for name, token in names.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))


def _gemma3(images: Any, tokenizer: Any, case: VisionLanguageCase) -> Any:
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    _name_tokens(tokenizer, names)
    return transformers.Gemma3Processor(
        images, tokenizer, image_seq_length=case.image_tokens, chat_template=case.template
    )


def _internvl(images: Any, tokenizer: Any, case: VisionLanguageCase) -> Any:
    names = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    _name_tokens(tokenizer, {**names, "video_token": "<video>"})
    video = transformers.InternVLVideoProcessor()
    return transformers.InternVLProcessor(
        images, tokenizer, video, image_seq_length=case.image_tokens, chat_template=case.template
    )


def _llava(images: Any, tokenizer: Any, case: VisionLanguageCase) -> Any:
    settings = {key: value for key, value in case.processor.items() if key != "processor_class"}
    kind = getattr(transformers, case.processor["processor_class"])
    return kind(images, tokenizer, chat_template=case.template, **settings)


def _llava_onevision(images: Any, tokenizer: Any, case: VisionLanguageCase) -> Any:
    settings = {key: value for key, value in case.processor.items() if key != "processor_class"}
    videos = transformers.LlavaOnevisionVideoProcessor()
    return transformers.LlavaOnevisionProcessor(images, tokenizer, videos, chat_template=case.template, **settings)


def _qwen(images: Any, tokenizer: Any, case: VisionLanguageCase) -> Any:
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    _name_tokens(tokenizer, {**names, "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"})
    stem = case.processor["processor_class"].removesuffix("Processor")
    videos = getattr(transformers, "Qwen3VLVideoProcessor" if stem == "Qwen3VL" else "Qwen2VLVideoProcessor")()
    return getattr(transformers, f"{stem}Processor")(images, tokenizer, videos, chat_template=case.template)


_PROCESSORS: dict[str, Any] = {
    "Idefics3Processor": lambda images, tokenizer, case: transformers.Idefics3Processor(
        images, tokenizer, image_seq_len=case.image_tokens, chat_template=case.template
    ),
    **dict.fromkeys(("LlavaProcessor", "LlavaNextProcessor", "PixtralProcessor"), _llava),
    "LlavaOnevisionProcessor": _llava_onevision,
    "InternVLProcessor": _internvl,
    "Gemma3Processor": _gemma3,
    **dict.fromkeys(("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"), _qwen),
}


def _answered(model: Any, processor: Any, turn: Turn, steps: int) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        content: list[dict[str, str]] = []
        for place, name in enumerate(turn.pictures):
            (Path(folder) / str(place)).write_bytes(turn_picture(name))
            content.append({"type": "image", "path": str(Path(folder) / str(place))})
        content.append({"type": "text", "text": turn.text})
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
    made = model.generate(
        **inputs,
        max_new_tokens=steps,
        min_new_tokens=steps,
        do_sample=False,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    prompt = inputs["input_ids"][0]
    return {
        "prompt": prompt.numpy().astype(np.int32),
        "tokens": made.sequences[0, len(prompt) :].numpy().astype(np.int32),
        "logits": torch.stack(made.logits, 1)[0].numpy().astype(np.float32),
    }


def _check_pictures(model: Any, processor: Any, turn: Turn, made: Arrays) -> None:
    """Checks that another picture of the same size, the last one turned around, gives other logits."""
    other = _answered(model, processor, Turn((*turn.pictures[:-1], "rgb_large"), turn.text), 1)
    if np.abs(other["logits"][0] - made["logits"][0]).max() < _VISIBLE:
        raise RuntimeError("pictures do not matter")


if __name__ == "__main__":
    sys.exit(main())
