"""A tiny Llama to train, and the same one in JAX."""

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from lang_core import TensorSpec
from tools.benching.jobs import _jax_llama as jax_llama
from transformer_core.models import DecoderConfig, DecoderLM

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

VALUES: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 19,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
BATCH: Final = 2
SEQUENCE: Final = 5

_LAYER: Final = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def model(**changes: Any) -> DecoderLM:
    """The model, with other values in its config."""
    return DecoderLM(DecoderConfig.from_hf(VALUES | changes))


def specs_of(made: DecoderLM) -> dict[str, TensorSpec]:
    """Returns the gradients of the parameters."""
    return {path: parameter.spec for path, parameter in made.named_parameters()}


def weights(made: DecoderLM) -> Arrays:
    """Random ones."""
    rng = np.random.default_rng(0)
    return {path: (rng.standard_normal(spec.shape) / 2).astype(np.float32) for path, spec in specs_of(made).items()}


def token_ids() -> Array:
    """[B, T + 1], with repeats."""
    return np.random.default_rng(1).integers(0, VALUES["vocab_size"], (BATCH, SEQUENCE + 1)).astype(np.int32)


def jax_loss(arrays: Arrays, ids: Array) -> Any:
    """The mean cross entropy of the next tokens, by jax alone."""
    layers = [
        {name: arrays[f"model.layers.{i}.{key}.weight"] for name, key in _LAYER.items()}
        for i in range(VALUES["num_hidden_layers"])
    ]
    head = arrays.get("lm_head.weight", arrays["model.embed_tokens.weight"])
    parameters = {
        "embedding": arrays["model.embed_tokens.weight"],
        "layers": layers,
        "norm": arrays["model.norm.weight"],
        "head": head,
    }
    logits = jax_llama.forward(VALUES, parameters, jnp.asarray(ids[:, :-1]))
    shares = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(shares, jnp.asarray(ids[:, 1:, None]), -1))


def jax_value_and_gradients(arrays: Arrays, ids: Array) -> tuple[float, Arrays]:
    """Computes loss and gradients by jax.value_and_grad."""
    loss, slopes = jax.jit(jax.value_and_grad(jax_loss))(arrays, ids)
    return float(loss), {path: np.asarray(slope) for path, slope in slopes.items()}
