"""Facts of a model before its export, as JSON values."""

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from lang_core import InputError, WeightSource, near_names
from tapeline.inspecting._facts import summary
from tapeline.text import TOKENIZER_FILES
from transformer_core.models import CONFIG_FILE


def model_facts(name: str, directory: Path, weights: WeightSource, source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns configuration, tokenizer files and tensors of a model; no tensor is read.

    Args:
        name: name of the model, as the user gave it.
        directory: folder with config.json and the tokenizer's files.
        weights: checkpoint.
        source: form of the checkpoint's files.

    Raises:
        CheckpointError: a tensor has an encoding that is not supported.
    """
    return {
        "model": name,
        "source": dict(source),
        "config": json.loads((directory / CONFIG_FILE).read_text()),
        "tokenizer": [file for file in TOKENIZER_FILES if (directory / file).is_file()],
        "tensors": summary(stored_tensors(name, weights)),
    }


def stored_tensors(name: str, weights: WeightSource, glob: str = "*") -> list[dict[str, Any]]:
    """Returns path, dtype (or encoding), shape and stored bytes of the tensors whose key matches a pattern.

    Raises:
        InputError: no key matches.
        CheckpointError: a tensor has an encoding that is not supported.
    """
    known = list(weights.keys())
    keys = [key for key in known if fnmatch.fnmatchcase(key, glob)]
    if not keys and glob != "*":
        raise InputError(
            f"parameters={glob}: none of the {len(known)} tensors of {name} matches{near_names(glob, known)}"
        )
    return [_tensor(weights, key) for key in keys]


def _tensor(weights: WeightSource, key: str) -> dict[str, Any]:
    spec, encoding = weights.spec(key), weights.encoding(key)
    if encoding is None:
        kind, nbytes = spec.dtype.name, spec.nbytes
    else:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[encoding.upper()]]
        kind, nbytes = encoding, spec.size // block * block_bytes
    return {"path": key, "dtype": kind, "shape": list(spec.shape), "bytes": nbytes}
