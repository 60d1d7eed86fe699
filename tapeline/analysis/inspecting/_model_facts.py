"""Facts of a model before its export, as JSON values."""

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lang_core import ENCODINGS, InputError, PackedRows, StoredBytes, WeightSource, near_names, read_json
from tapeline.analysis.inspecting._facts import summary
from tapeline.text import tokenizer_files
from transformer_core import CONFIG_FILE
from transformer_core.checkpoints.gguf import packed_bytes


def model_facts(name: str, directory: Path, weights: WeightSource, source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns configuration, tokenizer files and tensors of a model, and tensors that an export unpacks.

    Tensors are not read.

    Args:
        name: name of the model, as the user gave it.
        directory: folder with config.json and the tokenizer's files.
        weights: checkpoint.
        source: form of the checkpoint's files.

    Raises:
        CheckpointError: a tensor has an encoding that is not supported.
    """
    tensors = stored_tensors(name, weights)
    return {
        "model": name,
        "source": dict(source),
        "config": read_json(directory / CONFIG_FILE, "give the model's directory", nonfinite=True),
        "tokenizer": [file for file in tokenizer_files() if (directory / file).is_file()],
        "tensors": summary(tensors),
        "dequantised": _dequantised(weights, tensors),
    }


def stored_tensors(name: str, weights: WeightSource, glob: str = "*") -> list[dict[str, Any]]:
    """Returns path, dtype (or encoding), shape and stored bytes of the tensors with a matching key.

    Raises:
        InputError: the pattern does not match.
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
    nbytes = weights.stored_bytes(key) if isinstance(weights, StoredBytes) else None
    if nbytes is None and encoding is not None:
        nbytes = packed_bytes(encoding, spec.size)
    size = spec.nbytes if nbytes is None else nbytes
    return {"path": key, "dtype": encoding or spec.dtype.name, "shape": list(spec.shape), "bytes": size}


def _is_kept(weights: WeightSource, key: str) -> bool:
    """Returns whether an encoding of packed weights holds the tensor exactly."""
    return isinstance(weights, PackedRows) and weights.packed_as(key) in ENCODINGS


def _dequantised(weights: WeightSource, tensors: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Returns count, bytes and bytes in f32 of tensors that an export has to unpack, per encoding."""
    totals: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        encoding = weights.encoding(tensor["path"])
        if encoding is not None and encoding not in ENCODINGS and not _is_kept(weights, tensor["path"]):
            total = totals.setdefault(encoding, {"count": 0, "bytes": 0, "unpacked_bytes": 0})
            total["count"] += 1
            total["bytes"] += tensor["bytes"]
            total["unpacked_bytes"] += weights.spec(tensor["path"]).nbytes
    return totals
