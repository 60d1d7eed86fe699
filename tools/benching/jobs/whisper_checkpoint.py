"""Not measured: writes a Whisper model of CTranslate2, or one with random weights, as a directory of transformers."""

import itertools
import json
import struct
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from lang_core import TensorSpec, f16
from tools.benching.jobs._measure import serve
from transformer_core.checkpoints import write_safetensors

_FLOAT16: Final = 4  # dtype's number in the file
_MOST_POSITIONS: Final = 448
_TOKENS: Final = 51865
_END: Final = 50257  # of a text; special tokens follow
_START: Final = 50258
_ENGLISH: Final = 50259
_TRANSLATE: Final = 50358
_TRANSCRIBE: Final = 50359
_NO_TIMESTAMPS: Final = 50363


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``directory``; ``model``: a directory of CTranslate2 with model.bin, config.json and tokenizer.json,
            or ``width`` and ``layers`` of a model with random weights.
    """
    directory = Path(arguments["directory"])
    directory.mkdir()
    if "model" in arguments:
        source = Path(arguments["model"])
        variables = read_variables(source / "model.bin")
        ours, tokenizer = (_json(source / name) for name in ("config.json", "tokenizer.json"))
    else:
        variables = _random(arguments["width"], arguments["layers"])
        ours = {"lang_ids": [_ENGLISH], "suppress_ids": [], "suppress_ids_begin": [_END]}
        tokenizer = _words()
    tensors = {name: value for key in variables for name, value in _renamed(key, variables[key]).items()}
    specs = {name: TensorSpec(value.shape, f16) for name, value in tensors.items()}
    write_safetensors(directory / "model.safetensors", specs, lambda name, _: [tensors[name]])
    for name, content in {**_configs(variables, ours, tokenizer), "tokenizer.json": tokenizer}.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return {}


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


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


def _random(width: int, layers: int) -> dict[str, np.ndarray]:
    """Returns variables of a model with random weights."""
    drawn = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/conv1/weight": (width, 80, 3),
        "encoder/conv2/weight": (width, width, 3),
        "encoder/position_encodings/encodings": (1500, width),
        "decoder/position_encodings/encodings": (_MOST_POSITIONS, width),
        "decoder/embeddings/weight": (_TOKENS, width),
    }
    norms = [f"{side}/layer_norm" for side in ("encoder", "decoder")]
    for side, layer in itertools.product(("encoder", "decoder"), range(layers)):
        place = f"{side}/layer_{layer}"
        kinds = {"self_attention": (3, 1), **({"attention": (1, 2, 1)} if side == "decoder" else {})}
        for kind, parts in kinds.items():
            shapes |= {f"{place}/{kind}/linear_{n}/weight": (part * width, width) for n, part in enumerate(parts)}
        shapes |= {
            f"{place}/ffn/linear_0/weight": (4 * width, width),
            f"{place}/ffn/linear_1/weight": (width, 4 * width),
        }
        norms += [f"{place}/{kind}/layer_norm" for kind in (*kinds, "ffn")]
    variables = {key: drawn.normal(0, 0.05, shape).astype(np.float16) for key, shape in shapes.items()}
    biased = [key for key in shapes if key.endswith("/weight") and "embeddings" not in key]
    variables |= {key.replace("/weight", "/bias"): np.zeros(shapes[key][0], np.float16) for key in biased}
    for norm in norms:
        variables |= {f"{norm}/gamma": np.ones(width, np.float16), f"{norm}/beta": np.zeros(width, np.float16)}
    return variables


def _words() -> dict[str, Any]:
    """Returns a tokenizer.json whose tokens are numbers, with Whisper's special tokens."""
    named = {
        _END: "<|endoftext|>",
        _START: "<|startoftranscript|>",
        _ENGLISH: "<|en|>",
        _TRANSLATE: "<|translate|>",
        _TRANSCRIBE: "<|transcribe|>",
        _NO_TIMESTAMPS: "<|notimestamps|>",
    }
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": token, **plain} for number, token in named.items()],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {f"<{n}>": n for n in range(_TOKENS) if n not in named}, "merges": []},
    }


def _configs(
    variables: dict[str, np.ndarray], ours: dict[str, Any], tokenizer: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files of a directory of transformers."""
    tokens, width = variables["decoder/embeddings/weight"].shape
    layers = sum(key.startswith("encoder/layer_") and key.endswith("/ffn/linear_0/weight") for key in variables)
    mels = variables["encoder/conv1/weight"].shape[1]
    ends = {"bos_token_id": _END, "eos_token_id": _END, "pad_token_id": _END, "decoder_start_token_id": _START}
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
        "task_to_id": {"transcribe": _TRANSCRIBE, "translate": _TRANSLATE},
        "no_timestamps_token_id": _NO_TIMESTAMPS,
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
