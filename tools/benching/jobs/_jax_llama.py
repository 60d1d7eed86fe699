"""The peer's model: the same Llama forward as a JAX function, its layers unrolled as ours are."""

from typing import Any

import jax
import jax.numpy as jnp

Parameters = dict[str, Any]


def abstract_parameters(config: dict[str, Any]) -> Parameters:
    """The parameters as shapes alone; linear weights are [output, input]."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    layer = {
        "attention_norm": (hidden,),
        "query": (hidden, hidden),
        "key": (kv, hidden),
        "value": (kv, hidden),
        "output": (hidden, hidden),
        "mlp_norm": (hidden,),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    vocabulary = config["vocab_size"]
    return {
        "embedding": _abstract((vocabulary, hidden)),
        "layers": [
            {name: _abstract(shape) for name, shape in layer.items()} for _ in range(config["num_hidden_layers"])
        ],
        "norm": _abstract((hidden,)),
        "head": _abstract((vocabulary, hidden)),
    }


def abstract_tokens(sequence: int) -> jax.ShapeDtypeStruct:
    """Token ids [1, T] as a shape alone."""
    return jax.ShapeDtypeStruct((1, sequence), jnp.int32)


def _abstract(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def forward(config: dict[str, Any], parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """Logits [B, T, V] of token ids [B, T]."""
    x = parameters["embedding"][tokens]
    cos, sin = _rope_tables(config, tokens.shape[1])
    mask = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    eps = config["rms_norm_eps"]
    for layer in parameters["layers"]:
        x = x + _attention(config, layer, _rms_norm(x, layer["attention_norm"], eps), cos, sin, mask)
        x = x + _mlp(layer, _rms_norm(x, layer["mlp_norm"], eps))
    return _rms_norm(x, parameters["norm"], eps) @ parameters["head"].T


def _rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def _rope_tables(config: dict[str, Any], length: int) -> tuple[jax.Array, jax.Array]:
    half = config["hidden_size"] // config["num_attention_heads"] // 2
    frequencies = config["rope_theta"] ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def _rotated(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotates halves of [B, N, T, H]."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _attention(
    config: dict[str, Any], layer: Parameters, x: jax.Array, cos: jax.Array, sin: jax.Array, mask: jax.Array
) -> jax.Array:
    batch, length, hidden = x.shape
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]

    def split(y: jax.Array, count: int) -> jax.Array:
        return y.reshape(batch, length, count, hidden // heads).transpose(0, 2, 1, 3)

    query = _rotated(split(x @ layer["query"].T, heads), cos, sin)
    key = _rotated(split(x @ layer["key"].T, groups), cos, sin)
    value = split(x @ layer["value"].T, groups)
    query = query.reshape(batch, groups, heads // groups, length, hidden // heads)
    scores = jnp.einsum("bkgth,bksh->bkgts", query, key) * (hidden // heads) ** -0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    mixed = jnp.einsum("bkgts,bksh->bkgth", weights, value).reshape(batch, heads, length, hidden // heads)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, length, hidden) @ layer["output"].T


def _mlp(layer: Parameters, x: jax.Array) -> jax.Array:
    return (jax.nn.silu(x @ layer["gate"].T) * (x @ layer["up"].T)) @ layer["down"].T
