"""Hugging Face directories with random weights, of a model of any family."""

import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from lang_core import InputError, TensorSpec
from transformer_core.checkpoints._writer import write_sharded_safetensors

STANDARD_DEVIATION: Final = 0.02
"""Standard deviation of random weights."""

_BLOCK: Final = 1 << 20  # elements made at a time


def write_random_checkpoint(
    directory: str | os.PathLike[str],
    config: str,
    specs: Mapping[str, TensorSpec],
    *,
    seed: int = 0,
    shards: int = 1,
) -> list[str]:
    """Writes ``config.json`` and random weights.

    Vectors are 1, as norms are; biases and all others are normal with standard deviation 0.02. A tensor's values depend
    on the seed and its key only; memory does not grow with the model.

    Args:
        directory: directory to write, made if it is absent.
        config: content of ``config.json``.
        specs: specs of the tensors, by key.
        seed: seed of the weights.
        shards: number of files.

    Returns:
        The paths of the files.

    Raises:
        InputError: a file cannot be written.
    """

    def chunks(key: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        if spec.ndim < 2 and not key.endswith("bias"):
            yield np.ones(spec.shape, spec.dtype.numpy)
            return
        generator = np.random.default_rng([seed, zlib.crc32(key.encode())])
        for start in range(0, spec.size, _BLOCK):
            block = generator.standard_normal(min(_BLOCK, spec.size - start), np.float32)
            yield np.multiply(block, np.float32(STANDARD_DEVIATION), out=block).astype(spec.dtype.numpy)

    try:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
    except OSError as error:
        raise InputError(f"{os.fspath(directory)}: cannot write the checkpoint: {error.strerror or error}") from None
    return [path, *write_sharded_safetensors(directory, specs, chunks, shards)]
