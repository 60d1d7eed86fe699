"""GGUF files: header, metadata, and reads of every tensor."""

import struct
from pathlib import Path
from random import Random

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from lang_core import CheckpointError
from tests.fuzz._files import written
from tests.fuzz._target import Target
from transformer_core.checkpoints.gguf import GgufFile

_NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    12,
    31,
    32,
    33,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**60,
    2**63,
    2**64 - 1,
)


def _written_by_gguf(path: Path, kinds: bool) -> bytes:
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e4)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "é"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.5, -1.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    if kinds:
        packed = np.arange(34 * 2, dtype=np.uint8).reshape(2, 34)
        writer.add_tensor("q", packed, raw_dtype=GGMLQuantizationType.Q8_0)
        writer.add_tensor("h", np.ones((1, 2, 2), np.float16))
        writer.add_tensor("k", np.zeros((1, 144), np.uint8), raw_dtype=GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def _seeds() -> list[bytes]:
    return [_written_by_gguf(Path.cwd() / "seed.gguf", kinds) for kinds in (False, True)]


def _mutate(data: bytes, draw: Random) -> bytes:
    """Changes numbers, which have four or eight bytes, and lengths of texts."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if len(changed) < 9:
            break
        place = draw.randrange(len(changed) - 8)
        form = draw.choice(("<I", "<I", "<Q"))
        (value,) = struct.unpack_from(form, changed, place)
        value = draw.choice((*_NUMBERS, value + 1, value - 1, value * 2)) % (2**32 if form == "<I" else 2**64)
        struct.pack_into(form, changed, place, value)
        if draw.random() < 0.1:
            del changed[draw.randrange(len(changed)) :]
    return bytes(changed)


def _run(data: bytes) -> bool:
    with GgufFile(written("model.gguf", data)) as file:
        for key in [*file.keys()]:
            try:
                spec = file.spec(key)
            except CheckpointError:  # an encoding that is listed and not read
                continue
            array = file.read(key)
            if file.encoding(key) is None and array.shape != spec.shape:
                raise AssertionError(f"{key}: read {array.shape}, expected {spec.shape}")
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
