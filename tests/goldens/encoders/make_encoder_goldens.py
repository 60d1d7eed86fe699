"""Compute the golden files of encoders with transformers: run by hand, outside Bazel (see ../README.md).

    python -m tests.goldens.encoders.make_encoder_goldens [--only NAME ...]

Each case is checked while it is made: transformers uses every key of the checkpoint and misses none, each change in
``must_matter`` moves the results, and so does padding that is not masked.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import sentence_transformers
import torch
import transformers
from sentence_transformers.base.modules import Dense
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from tests.goldens.encoders import make_neobert_goldens
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import (
    DATA,
    dense_configs,
    random_encoder_weights,
    read_encoder_manifest,
    write_config,
    write_weights,
)

_VISIBLE = 1e-2
Arrays = dict[str, np.ndarray]
Shapes = dict[str, list[int]]


def main() -> int:
    """Make the files asked for; a case that fails a check raises, and leaves its file as it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(ENCODER_CASES), default=sorted(ENCODER_CASES))
    names = parser.parse_args().only
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    DATA.mkdir(exist_ok=True)
    made = {}
    for name in names:
        case = ENCODER_CASES[name]
        shapes = _shapes(case)
        inputs = _inputs(case)
        model = _load(case, shapes)
        outputs, hidden = _run(case, model, inputs)
        _check(case, shapes, inputs, outputs)
        arrays = {f"input.{key}": value for key, value in inputs.items()}
        arrays |= {f"output.{key}": value for key, value in outputs.items()}
        np.savez_compressed(DATA / f"{name}.npz", hidden=hidden, **arrays)
        made[name] = {"case": case.digest(), "shapes": shapes}
        print(f"{name}: {(DATA / f'{name}.npz').stat().st_size} bytes; {[(k, v.shape) for k, v in outputs.items()]}")
    _write_manifest(made)
    return 0


def _class(case: EncoderCase) -> Any:
    return getattr(transformers, case.architecture, None) or getattr(make_neobert_goldens.MODELS, case.architecture)


def _shapes(case: EncoderCase, change: Mapping[str, Any] | None = None) -> Shapes:
    """Keys and shapes that transformers stores of such a model."""
    with tempfile.TemporaryDirectory() as name:
        write_config(Path(name), case)
        config = transformers.AutoConfig.from_pretrained(name, **(change or {}))
        _class(case)(config).save_pretrained(name)
        with safetensors.safe_open(Path(name) / "model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        if case.config.get("d_kv") and not case.config.get("tie_word_embeddings", True):
            shapes["lm_head.weight"] = shapes["shared.weight"]  # transformers writes none before there are weights
        for place, matrix in enumerate(dense_configs(case), 2):
            shapes[f"{place}_Dense.linear.weight"] = [matrix["out_features"], matrix["in_features"]]
            if matrix["bias"]:
                shapes[f"{place}_Dense.linear.bias"] = [matrix["out_features"]]
        return shapes


def _load(case: EncoderCase, shapes: Shapes, change: Mapping[str, Any] | None = None) -> Any:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_config(directory, case)
        config = {**case.config, **(change or {})}
        (directory / "config.json").write_text(json.dumps(config))
        write_weights(directory, _weights(case, shapes))
        model, info = _class(case).from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    problems = {kind: keys for kind, keys in info.items() if keys}
    if problems:
        raise RuntimeError(f"{case.name}: transformers does not take the checkpoint as it is: {problems}")
    return model.eval()


def _weights(case: EncoderCase, shapes: Shapes) -> Arrays:
    return random_encoder_weights({key: tuple(shape) for key, shape in shapes.items()}, case.seed)


def _inputs(case: EncoderCase) -> Arrays:
    random = np.random.default_rng(case.seed)
    vision = case.config.get("vision_config", case.config)
    if "image_size" in vision:
        side = vision["image_size"]
        image = case.picture or (side if isinstance(side, list) else [side, side])
        pixels = random.standard_normal((2, vision.get("num_channels", 3), *image)).astype(np.float32)
        if vision is case.config or not case.lengths:
            return {"pixel_values": pixels}
        ids = random.integers(1, case.config["text_config"]["vocab_size"], (2, max(case.lengths)))
        end = case.config["text_config"].get("eos_token_id")
        if end is not None:  # CLIP reads the first of these
            ids = np.where(ids == end, 1, ids)
            ids[np.arange(2), np.array(case.lengths) - 1] = end
        return {"pixel_values": pixels, "token_ids": ids.astype(np.int32)}
    if "time_stride" in case.config:
        shape = (2, case.config["max_length"], case.config["num_mel_bins"])
        return {"input_values": random.standard_normal(shape).astype(np.float32)}
    if "num_mel_bins" in case.config:
        shape = (len(case.lengths), case.config["num_mel_bins"], 2 * case.config["max_source_positions"])
        ids = random.integers(4, case.config["vocab_size"], (len(case.lengths), max(case.lengths)))
        return {"input_features": random.standard_normal(shape).astype(np.float32), "token_ids": ids.astype(np.int32)}
    if "conv_dim" in case.config:
        samples = _samples(case.config, max(case.lengths))
        values = random.standard_normal((len(case.lengths), samples)).astype(np.float32)
        return {"input_values": values, "lengths": np.full(len(case.lengths), samples, np.int32)}
    batch, longest = len(case.lengths), max(case.lengths)
    mask = (np.arange(longest) < np.array(case.lengths)[:, None]).astype(np.int32)
    ids, types = random.integers(1, case.config["vocab_size"], (batch, longest)), case.config.get("type_vocab_size", 0)
    if "ForSequenceClassification" in case.architecture and "head_dim" in case.config:  # finds the last token by its id
        ids = np.where(mask, ids, case.config["pad_token_id"])
    inputs = {"token_ids": ids.astype(np.int32), "attention_mask": mask}
    if case.steps:
        written = case.config.get("decoder_vocab_size", case.config["vocab_size"])
        targets = random.integers(2, written, (batch, longest))
        return {**inputs, "decoder_token_ids": targets.astype(np.int32)}
    if "coordinate_size" in case.config:
        corners = np.sort(random.integers(0, 1000, (batch, longest, 2, 2)), 2)
        inputs["bbox"] = corners.reshape(batch, longest, 4).astype(np.int32)
    if types < 2:
        return inputs
    return {**inputs, "token_type_ids": random.integers(0, types, (batch, longest)).astype(np.int32)}


def _samples(config: Mapping[str, Any], frames: int) -> int:
    """The fewest samples, a multiple of the strides' product, that give so many frames."""
    ratio = int(np.prod(config["conv_stride"]))

    def count(samples: int) -> int:
        for width, stride in zip(config["conv_kernel"], config["conv_stride"], strict=True):
            samples = (samples - width) // stride + 1
        return samples

    return next(samples for samples in range(ratio, 10**6, ratio) if count(samples) == frames)


_NAMES = {"token_ids": "input_ids"}
_LAYERS = (
    "BertLayer",
    "AlbertLayer",
    "CamembertLayer",
    "ElectraLayer",
    "DebertaV2Layer",
    "V3Layer",
    "RobertaLayer",
    "RobertaXLLayer",
    "GteLayer",
    "EsmLayer",
    "ErnieLayer",
    "BigBirdLayer",
    "PreLayerNormLayer",
    "Data2VecTextLayer",
    "DebertaLayer",
    "RoFormerLayer",
    "LongformerLayer",
    "LayoutLMv3Layer",
    "EncoderBlock",
    "MPNetLayer",
    "TransformerBlock",
    "ViTLayer",
    "Dinov2Layer",
    "Dinov2WithRegistersLayer",
    "DeiTLayer",
    "BeitLayer",
    "DINOv3ViTLayer",
    "EncoderLayer",
    "DecoderLayer",
    "LayerStableLayerNorm",
    "SwinLayer",
    "SegformerLayer",
    "YolosLayer",
    "ViTMAELayer",
    "ASTLayer",
    "ConvNextLayer",
    "T5Block",
)
_CLEAR_MARGIN = 1e-3
_DISTINCT_TOKENS = 5


def _run(case: EncoderCase, model: Any, inputs: Arrays) -> tuple[Arrays, np.ndarray]:
    tensors = {_NAMES.get(name, name): torch.from_numpy(array) for name, array in inputs.items()}
    tensors = {name: tensor.long() if not tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    tensors.pop("lengths", None)  # no sound has padding
    if "mask_ratio" in case.config:  # noise is sorted for the order of patches: theirs in the picture
        side = case.config["image_size"] // case.config["patch_size"]
        tensors["noise"] = torch.arange(side**2, dtype=torch.float32).expand(2, -1)
    if "decoder_token_ids" in tensors:
        return _translated(case, model, tensors["input_ids"], tensors["attention_mask"], tensors["decoder_token_ids"])
    if case.steps:
        return _transcribed(case, model, tensors["input_features"], tensors["input_ids"])
    states = _states_of_layers(getattr(model, "vision_model", model))
    result = model(**tensors)
    names = (
        "last_hidden_state",
        "pooler_output",
        "logits",
        "start_logits",
        "end_logits",
        "image_embeds",
        "text_embeds",
        "logits_per_image",
        "pred_boxes",
    )
    outputs = {name: result[name].numpy() for name in names if result.get(name) is not None}
    if "pred_boxes" in outputs:
        del outputs["last_hidden_state"]
    if case.pooling:
        outputs.pop("pooler_output", None)
        outputs["sentence_embedding"] = _embedded(case, result["last_hidden_state"], tensors["attention_mask"])
    if case.score:
        rows = torch.arange(len(case.lengths)), torch.tensor(case.lengths) - 1
        outputs["logits"] = LogitScore(*case.score)({"causal_logits": result["logits"][rows][:, None]})[
            "scores"
        ].numpy()
    alike = [state for state in states if state.shape == states[0].shape]  # of the first stage, if there are several
    return outputs, torch.stack(alike).numpy()


def _transcribed(case: EncoderCase, model: Any, features: torch.Tensor, ids: torch.Tensor) -> tuple[Arrays, np.ndarray]:
    """The encoder's states, the prompt's logits, greedy steps with a cache: tokens [B, steps], logits [B, steps, V]."""
    hidden = _states_of_layers(model.model.encoder)
    encoded = model.model.encoder(features)
    whole = model(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=False).logits
    logits, chosen = _greedy(case, model, ids, encoder_outputs=encoded)
    together = model(encoder_outputs=encoded, decoder_input_ids=torch.cat([ids, torch.from_numpy(chosen)], 1)).logits
    np.testing.assert_allclose(together[:, ids.shape[1] - 1 : -1].numpy(), logits, rtol=1e-4, atol=1e-4)
    outputs = {"encoded": encoded[0].numpy(), "tokens": chosen, "step_logits": logits, "logits": whole.numpy()}
    return outputs, torch.stack(hidden).numpy()


def _translated(
    case: EncoderCase, model: Any, ids: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor
) -> tuple[Arrays, np.ndarray]:
    """Returns what ``_transcribed`` does, of a text; answers begin with their first token alone."""
    encoder = model.get_encoder()
    hidden = _states_of_layers(encoder)
    encoded = encoder(ids, attention_mask=mask)
    given = {"encoder_outputs": encoded, "attention_mask": mask}
    whole = model(**given, decoder_input_ids=targets, use_cache=False).logits
    start = torch.full((len(ids), 1), case.config["decoder_start_token_id"])
    logits, chosen = _greedy(case, model, start, **given)
    outputs = {"encoded": encoded[0].numpy(), "tokens": chosen, "step_logits": logits, "logits": whole.numpy()}
    return outputs, torch.stack([state[:, : ids.shape[1]] for state in hidden]).numpy()  # LED's encoder adds padding


def _greedy(case: EncoderCase, model: Any, new: torch.Tensor, **given: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logits [B, steps, V] and tokens [B, steps] of greedy steps with a cache."""
    cache, steps, tokens = None, [], []
    for _ in range(case.steps):
        result = model(**given, decoder_input_ids=new, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        steps.append(result.logits[:, -1])
        new = steps[-1].argmax(-1, keepdim=True)
        tokens.append(new)
    return torch.stack(steps, 1).numpy(), torch.cat(tokens, 1).numpy()


def _check_steps(case: EncoderCase, logits: np.ndarray, tokens: np.ndarray) -> None:
    top = np.sort(logits, axis=-1)
    margin, fewest = (top[..., -1] - top[..., -2]).min(), min(len(set(row)) for row in tokens.tolist())
    repeats = "max_position_embeddings" in case.config or "decoder" in case.config  # BART's group and T5Gemma
    least = 2 if repeats else _DISTINCT_TOKENS
    if margin < _CLEAR_MARGIN or fewest < least:
        raise RuntimeError(f"{case.name}: margin {margin:.2g}, {fewest} distinct tokens; take another seed")


def _states_of_layers(model: Any) -> list[torch.Tensor]:
    """Collects the results of the layers of the next call."""
    stacks = [module for module in model.modules() if type(module).__name__.endswith(_LAYERS)]
    states: list[torch.Tensor] = []
    for layer in stacks:
        layer.register_forward_hook(lambda module, inputs, output: states.append(_first(output).clone()))
    return states


def _first(output: Any) -> torch.Tensor:
    first = output[0] if isinstance(output, tuple) else output
    return first.permute(0, 2, 3, 1) if first.ndim == 4 else first  # channels last


def _embedded(case: EncoderCase, states: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    features = {"token_embeddings": states, "attention_mask": mask}
    pooled = Pooling(states.shape[-1], case.pooling)(features)
    weights = _weights(case, _shapes(case))
    for place, config in enumerate(dense_configs(case), 2):
        activation = torch.nn.Identity() if place > 2 else torch.nn.Tanh()
        matrix = Dense(config["in_features"], config["out_features"], config["bias"], activation)
        prefix = f"{place}_Dense."
        own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
        matrix.load_state_dict({key: torch.from_numpy(value) for key, value in own.items()})
        pooled = matrix(pooled)
    return Normalize()(pooled)["sentence_embedding"].numpy()


def _check(case: EncoderCase, shapes: Shapes, inputs: Arrays, outputs: Arrays) -> None:
    if case.steps:
        _check_steps(case, outputs["step_logits"], outputs["tokens"])
    last = list(outputs)[-1]
    if not 0.05 < outputs[last].std() < 10:
        raise RuntimeError(f"{case.name}: {last} has a standard deviation of {outputs[last].std():.3g}")
    moves = {str(change): _run(case, _load(case, shapes, change), inputs)[0] for change in case.must_matter}
    causal = "num_key_value_heads" in case.config and not case.pooling  # tokens see no padding, masked or not
    if "attention_mask" in inputs and not causal and not inputs["attention_mask"].all():
        seen = {**inputs, "attention_mask": np.ones_like(inputs["attention_mask"])}
        moves["no mask"] = _run(case, _load(case, shapes), seen)[0]
    for change, result in moves.items():
        moved = float(np.abs(result[last] - outputs[last]).max())
        print(f"    {case.name}: {change} moves {last} by {moved:.3g}")
        if moved < _VISIBLE:
            raise RuntimeError(f"{case.name}: {change} moves {last} by {moved:.2g} only; the case does not see it")


def _write_manifest(made: dict[str, Any]) -> None:
    known = read_encoder_manifest()["cases"] if (DATA / "manifest.json").exists() else {}
    head = {
        "script": "tests/goldens/encoders/make_encoder_goldens.py",
        "versions": {
            "numpy": np.__version__,
            "python": platform.python_version(),
            "sentence-transformers": sentence_transformers.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    cases = {name: entry for name, entry in sorted({**known, **made}.items()) if name in ENCODER_CASES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in cases.items())
    text = f'{json.dumps(head, indent=1)[:-2]},\n "cases": {{\n{lines}\n }}\n}}\n'
    (DATA / "manifest.json").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
