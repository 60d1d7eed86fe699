"""Tiny model that calls a tool, and tells its result: what a client needs to see, at the cost of nothing.

Attention and feed-forward layers are zero, so the next token follows from the last one: each token of a script has the
next one as its likeliest. The chat template begins a call if there are tools, and a text otherwise. A grammar that
forbids the script's token takes the likeliest one of the others, which end strings, objects and texts soon.
"""

import itertools
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tests.product._bundles import export

SAID: Final = ("It", " is", " sunny", " in", " Rome", ".")
"""Pieces of the text that the model says."""
_CALL: Final = ("<tool_call>\n", '{"name": "weather", ', '"arguments": {"city": "Rome"}}', "\n</tool_call>")
_END, _BEGIN_CALL, _BEGIN_TEXT = "<|end|>", "<|call|>", "<|say|>"
_SPECIAL: Final = (_END, _BEGIN_CALL, _BEGIN_TEXT)
_WIDTH: Final = 320
_SURE: Final = 20.0
_STARTS: Final = "abcdefghijklmnopqrstuvwxyzĊ"  # tokens after which it says the text; the last one is a line end
# Logits of tokens that no script has; inside of a string a quote is the only token of these that ends anything.
_OTHERS: Final = {_END: 6.0, '"': 5.0, "}": 4.0, "]": 3.0, **dict.fromkeys("0123456789", 2.0), ":": 1.0, ",": 1.0}
_TEMPLATE: Final = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool|tojson }}{% endfor %}</tools>"
    'Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>{% endif %}'
    "{% for message in messages %}[{{ message.role }}]{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call|tojson }}</tool_call>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}{% if tools and messages[-1].role != 'tool' %}<|call|>{% else %}<|say|>{% endif %}"
    "{% endif %}"
)


def export_model(folder: Path) -> Path:
    """Exports the model into a folder, and returns the bundle: its name is the model's."""
    model = folder / "model"
    model.mkdir()
    write_model(model)
    return export(model, folder / "demo", slots=4, max_sequence=4096, sequence=64)


def write_model(directory: Path) -> None:
    """Writes the checkpoint of the model into an empty directory."""
    tokenizer = _tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    fields: dict[str, dict[str, Any]] = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": _END,
            "chat_template": _TEMPLATE,
        },
        "generation_config.json": {"eos_token_id": tokenizer.token_to_id(_END), "do_sample": False},
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": size,
            "hidden_size": _WIDTH,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "eos_token_id": tokenizer.token_to_id(_END),
            "torch_dtype": "float32",
        },
    }
    for name, content in fields.items():
        (directory / name).write_text(json.dumps(content))
    save_file(_weights(tokenizer), directory / "model.safetensors")


def _tokenizer() -> tokenizers.Tokenizer:
    """Returns a tokenizer of bytes, with the pieces of the scripts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in (*SAID, *_CALL)])
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in _SPECIAL])
    return inner


def _weights(tokenizer: tokenizers.Tokenizer) -> dict[str, np.ndarray]:
    size = tokenizer.get_vocab_size()
    assert size <= _WIDTH

    def number(token: str) -> int:
        token_id = tokenizer.token_to_id(token)
        assert token_id is not None, token
        return token_id

    logits = np.zeros((size, _WIDTH), np.float32)  # [V, D]: of the next token, by the last one
    for token, logit in _OTHERS.items():
        logits[number(token), :] = logit
    scripts = [
        (_BEGIN_TEXT, *SAID, _END),
        (_BEGIN_CALL, *_CALL, _END),
        *((letter, SAID[0]) for letter in _STARTS),
    ]
    for script in scripts:
        for last, following in itertools.pairwise(script):
            logits[number(following), number(last)] = _SURE
    layer = "model.layers.0"
    zeros = {
        f"{layer}.self_attn.q_proj.weight": (32, _WIDTH),
        f"{layer}.self_attn.k_proj.weight": (16, _WIDTH),
        f"{layer}.self_attn.v_proj.weight": (16, _WIDTH),
        f"{layer}.self_attn.o_proj.weight": (_WIDTH, 32),
        f"{layer}.mlp.gate_proj.weight": (32, _WIDTH),
        f"{layer}.mlp.up_proj.weight": (32, _WIDTH),
        f"{layer}.mlp.down_proj.weight": (_WIDTH, 32),
    }
    norms = [f"{layer}.input_layernorm.weight", f"{layer}.post_attention_layernorm.weight", "model.norm.weight"]
    return {
        "model.embed_tokens.weight": np.eye(size, _WIDTH, dtype=np.float32),
        "lm_head.weight": logits / math.sqrt(_WIDTH),  # RMSNorm makes sqrt(D) of the one value of an embedding
        **{name: np.zeros(shape, np.float32) for name, shape in zeros.items()},
        **{name: np.ones(_WIDTH, np.float32) for name in norms},
    }
