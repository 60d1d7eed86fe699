"""The demo model's weights, made from a stream of bits, and the file that holds them."""

import json
import math
from collections.abc import Iterator
from typing import IO, Final

import numpy as np

from tools.demo._config import CONFIG

_SEED: Final = 20
_BITS: Final = 24  # what a float32 holds exactly


def shapes() -> dict[str, tuple[int, ...]]:
    """Returns the parameters under Hugging Face's names, in the order in which the model uses them.

    A weight is ``[outputs, inputs]``.
    """
    size, wide, vocabulary = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    queries = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    layer = {
        "input_layernorm.weight": (size,),
        "self_attn.q_proj.weight": (queries, size),
        "self_attn.k_proj.weight": (keys, size),
        "self_attn.v_proj.weight": (keys, size),
        "self_attn.o_proj.weight": (size, queries),
        "post_attention_layernorm.weight": (size,),
        "mlp.gate_proj.weight": (wide, size),
        "mlp.up_proj.weight": (wide, size),
        "mlp.down_proj.weight": (size, wide),
    }
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, size)}
    for index in range(CONFIG["num_hidden_layers"]):
        found |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return found | {"model.norm.weight": (size,), "lm_head.weight": (vocabulary, size)}


def weights() -> Iterator[tuple[str, np.ndarray]]:
    """Yields each parameter's name and its float32 values, always the same ones.

    Norm weights are near 1. The others are uniform with variance 1/inputs, so that activations keep their size; an
    embedding has variance 1. Every step is exact or one IEEE rounding of float64: no library's stream of random
    floats is used, because only the streams of bits are stable over NumPy's versions.
    """
    bits = np.random.PCG64(_SEED)
    for name, shape in shapes().items():
        raw = bits.random_raw(math.prod(shape)) >> np.uint64(64 - _BITS)
        centered = raw.astype(np.float64) * 2.0 ** (1 - _BITS) - 1  # in [-1, 1)
        if len(shape) == 1:
            values = 1 + centered / 8
        else:
            inputs = 1 if "embed" in name else shape[1]
            values = centered * math.sqrt(3 / inputs)  # uniform in [-a, a) has variance a²/3
        yield name, values.astype("<f4").reshape(shape)


def write_safetensors(file: IO[bytes]) -> None:
    """Writes the weights as a safetensors file: the header's length, the header (JSON), the data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes().items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for _, values in weights():
        file.write(values.tobytes())
