"""Not measured: writes a Whisper model of CTranslate2 as a directory of transformers."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from lang_core import TensorSpec, f16
from tools.benching.jobs._measure import serve
from transformer_core.checkpoints import write_safetensors

_FLOAT16: Final = 4  # dtype's number in the file
_MOST_POSITIONS: Final = 448


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``model``: directory of CTranslate2, with model.bin, config.json and tokenizer.json; ``directory``.
    """
    source, directory = Path(arguments["model"]), Path(arguments["directory"])
    directory.mkdir()
    variables = read_variables(source / "model.bin")
    tensors = {name: value for key in variables for name, value in _renamed(key, variables[key]).items()}
    specs = {name: TensorSpec(value.shape, f16) for name, value in tensors.items()}
    write_safetensors(directory / "model.safetensors", specs, lambda name, _: [tensors[name]])
    ours = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    for name, content in _configs(variables, ours, tokenizer).items():
        (directory / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    shutil.copy(source / "tokenizer.json", directory)
    return {}


def read_variables(path: Path) -> dict[str, np.ndarray]:
    """Returns the variables of a model of CTranslate2, those in f16 alone: others are options of its layers."""
    with path.open("rb") as file:
        version, name, _ = _number(file, 4), _text(file), _number(file, 4)
        if version != 6 or name != "WhisperSpec":
            raise ValueError(f"{path}: expected a Whisper in version 6; found {name} in version {version}")
        variables = {}
        for _ in range(_number(file, 4)):
            key, rank = _text(file), _number(file, 1)
            shape = [_number(file, 4) for _ in range(rank)]
            dtype, size = _number(file, 1), _number(file, 4)
            data = file.read(size)
            if dtype == _FLOAT16:
                variables[key] = np.frombuffer(data, np.float16).reshape(shape)
    return variables


def _number(file: BinaryIO, size: int) -> int:
    return int(struct.unpack({1: "<B", 2: "<H", 4: "<I"}[size], file.read(size))[0])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, 2)).removesuffix(b"\0").decode()


_NAMES: Final = {
    "layer_norm/gamma": "layer_norm.weight",
    "layer_norm/beta": "layer_norm.bias",
    "position_encodings/encodings": "embed_positions.weight",
    "embeddings/weight": "embed_tokens.weight",
}
_LAYER_NAMES: Final = {
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
}


def _renamed(key: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the tensors of transformers that a variable holds: queries, keys and values are one there."""
    side, rest = key.split("/", 1)
    if not rest.startswith("layer_") or rest.startswith("layer_norm"):
        return {f"model.{side}.{_NAMES.get(rest, rest.replace('/', '.'))}": value}
    layer, rest = rest.removeprefix("layer_").split("/", 1)
    module, kind = rest.rsplit("/", 1)
    kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    names = _LAYER_NAMES[module]
    parts = np.split(value, len(names))
    return {
        f"model.{side}.layers.{layer}.{name}.{kind}": part
        for name, part in zip(names, parts, strict=True)
        if not (name.endswith("k_proj") and kind == "bias")  # zeros: keys have none
    }


def _configs(
    variables: dict[str, np.ndarray], ours: dict[str, Any], tokenizer: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files of a directory of transformers."""
    tokens, width = variables["decoder/embeddings/weight"].shape
    layers = sum(key.startswith("encoder/layer_") and key.endswith("/ffn/linear_0/weight") for key in variables)
    mels = variables["encoder/conv1/weight"].shape[1]
    ends = {"bos_token_id": 50257, "eos_token_id": 50257, "pad_token_id": 50257, "decoder_start_token_id": 50258}
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": tokens,
        "num_mel_bins": mels,
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": width // 64,
        "decoder_attention_heads": width // 64,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "max_source_positions": 1500,
        "max_target_positions": _MOST_POSITIONS,
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        **ends,
    }
    names = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    languages = {names[number]: number for number in ours["lang_ids"]}
    generation = {
        **ends,
        "is_multilingual": True,
        "lang_to_id": languages,
        "task_to_id": {"transcribe": 50359, "translate": 50358},
        "no_timestamps_token_id": 50363,
        "suppress_tokens": ours["suppress_ids"],
        "begin_suppress_tokens": ours["suppress_ids_begin"],
        "max_length": _MOST_POSITIONS,
        "max_initial_timestamp_index": 50,
        "return_timestamps": False,
    }
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": mels,
        "sampling_rate": 16000,
        "hop_length": 160,
        "chunk_length": 30,
        "n_fft": 400,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "WhisperProcessor",
        "return_attention_mask": False,
    }
    return {"config.json": config, "generation_config.json": generation, "preprocessor_config.json": features}


if __name__ == "__main__":
    serve(run)
