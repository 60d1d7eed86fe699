"""Hold drawn variants of encoders to transformers: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.encoders.draw_encoders --family modernbert --count 100

Each variant is a config.json drawn from the family's space, with random weights that transformers saves. What it gives
of drawn texts and pictures, some padded, is compared with the entry point ``forward``.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from transformers import AutoConfig
from transformers.modeling_layers import GenericForSequenceClassification

from lang_core import EagerExecutionContext
from tests.goldens._case_types import Config
from tests.goldens.draw_families import SPACES as DECODER_SPACES
from tests.goldens.draw_families import TOLERANCE, Outcome, draw_all, error_of, options_of, randomize
from tests.goldens.encoders._drawn_spaces import SPACES as ENCODER_SPACES
from tests.goldens.encoders._drawn_spaces import classifier_spaces
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import entry_points, load_model, weights_of

_PER_TOKEN: Final = ("last_hidden_state", "logits", "start_logits", "end_logits")
_OUTPUTS: Final = (*_PER_TOKEN, "pooler_output", "image_embeds", "text_embeds", "logits_per_image")
_NAMES: Final = {"token_ids": "input_ids", "decoder_token_ids": "decoder_input_ids"}
SPACES: Final = {**ENCODER_SPACES, **classifier_spaces(DECODER_SPACES)}
Arrays = dict[str, np.ndarray]


def main() -> int:
    """Compare the variants asked for; 1 where one differs or fails."""
    options = options_of(__doc__, SPACES)
    return draw_all(options.family, SPACES[options.family], options, expected_of, compared)


def expected_of(directory: Path, config: Config, rng: random.Random) -> tuple[Arrays, Arrays]:
    """Writes a checkpoint of the config, as drawn or as transformers writes it; returns inputs and results."""
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    family: Any = getattr(transformers, config["architectures"][0])
    made = family(AutoConfig.from_pretrained(directory))
    randomize(made, rng.randrange(1 << 32))
    made.save_pretrained(directory)
    if rng.random() < 0.5:
        path.write_text(json.dumps(config))
    model = family.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    inputs = _inputs(config, model.config, np.random.default_rng(rng.randrange(1 << 32)))
    tensors = {_NAMES.get(name, name): torch.from_numpy(array) for name, array in inputs.items()}
    result = model(**{name: x if x.is_floating_point() else x.long() for name, x in tensors.items()})
    outputs = {name: result[name].numpy() for name in _OUTPUTS if result.get(name) is not None}
    if not all(np.isfinite(array).all() for array in outputs.values()):
        raise ValueError("transformers computes results that are not finite")
    return inputs, outputs


def _inputs(config: Config, read: Any, random_numbers: np.random.Generator) -> Arrays:
    inputs: Arrays = {}
    vision = getattr(read, "vision_config", read)
    if hasattr(vision, "image_size"):
        shape = (2, vision.num_channels, vision.image_size, vision.image_size)
        inputs["pixel_values"] = random_numbers.standard_normal(shape).astype(np.float32)
        if vision is read:
            return inputs
    text = getattr(read, "text_config", read)
    longest, vocabulary = int(random_numbers.integers(4, 12)), text.vocab_size
    lengths = np.array([longest, random_numbers.integers(2, longest)])
    if read.model_type == "mobilebert":  # whose last token sees the padding behind it
        lengths[:] = longest
    ids = random_numbers.integers(4, vocabulary, (2, longest))
    if config["architectures"] == ["LongformerForQuestionAnswering"]:  # which wants three separators
        ids[:, [1, lengths.min() - 1, 3]] = read.sep_token_id
    if "text_config" in config:
        end = text.eos_token_id
        ids = np.where(ids == end, 4, ids)
        ids[np.arange(2), lengths - 1] = end if end != 2 else vocabulary - 1
        return {**inputs, "token_ids": ids.astype(np.int32)}
    mask = np.arange(longest) < lengths[:, None]
    family = getattr(transformers, config["architectures"][0])
    if issubclass(family, GenericForSequenceClassification) or (
        "ForSequenceClassification" in config["architectures"][0] and "initializer_range" in config
    ):
        if read.pad_token_id is None:  # transformers takes one text at a time
            ids, mask = ids[:1], mask[:1]
        else:
            ids = np.where(mask, ids, read.pad_token_id)  # transformers finds the last token by its id
    inputs = {"token_ids": ids.astype(np.int32), "attention_mask": mask.astype(np.int32)}
    if read.model_type == "layoutlmv3":
        corners = np.sort(random_numbers.integers(0, 1000, (2, longest, 2, 2)), 2)
        inputs["bbox"] = corners.reshape(2, longest, 4).astype(np.int32)
    types = getattr(read, "type_vocab_size", 0)
    if read.is_encoder_decoder and "Encoder" not in config["architectures"][0]:
        written = getattr(read, "decoder_vocab_size", None) or vocabulary
        inputs["decoder_token_ids"] = random_numbers.integers(4, written, (2, longest)).astype(np.int32)
    elif types >= 2:
        inputs["token_type_ids"] = random_numbers.integers(0, types, (2, longest)).astype(np.int32)
    return inputs


def compared(directory: Path, expected: tuple[Arrays, Arrays]) -> Outcome:
    inputs, outputs = expected
    model = load_model(directory)
    ids, worst = inputs.get("token_ids"), 0.0
    with SafetensorsCheckpoint(directory) as weights:
        ctx = EagerExecutionContext(weights_of(model, weights))
        sizes: Any = {"batch": len(next(iter(inputs.values()))), "sequence": None if ids is None else ids.shape[1]}
        (point,) = entry_points(model, names=("forward",), **sizes)
        wanted = [argument.name for argument in point.arguments]
        if wanted != list(inputs):
            return Outcome("differs", f"arguments {wanted}, expected {list(inputs)}")
        results: Any = point(ctx, *map(ctx.constant, inputs.values()))
    for name in results:
        seen = _seen(name, results[name].numpy(), inputs), _seen(name, outputs[name], inputs)
        worst = max(worst, error_of(*seen))
        if not worst < TOLERANCE:
            return Outcome("differs", f"{name}, by {worst:.2g}")
    return Outcome("equal", error=worst)


def _seen(name: str, array: np.ndarray, inputs: Arrays) -> np.ndarray:
    """Returns the results of tokens that are no padding, where there is one for each."""
    mask = inputs.get("attention_mask")
    per_token = mask is not None and "decoder_token_ids" not in inputs and array.shape[:2] == mask.shape
    per_token = per_token and name in _PER_TOKEN
    return array[mask.astype(bool)] if per_token and mask is not None else array


if __name__ == "__main__":
    sys.exit(main())
