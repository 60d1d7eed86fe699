"""Metadata of GGUF files as configurations: what is read, and what is refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from lang_core import ConfigError
from transformer_core import QueryGrowth, RopeMode
from transformer_core.models.gguf import ARCHITECTURES, GgufModel
from transformer_core.models.gguf._metadata_testing import DEEPSEEK, LLAMA, OTHERS
from transformer_core.models.gguf.readers import READERS

GEMMA: dict[str, Any] = {
    **LLAMA,
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.key_length_swa": 16,
    "attention.sliding_window": 8,
}


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., GgufModel]:
    """Writes a file without layers: enough for its configuration."""

    def make(
        architecture: str = "llama", fields: dict[str, Any] = LLAMA, *names: str, general: Any = None, **tensors: Any
    ) -> GgufModel:
        path = tmp_path / "some.gguf"
        writer = GGUFWriter(path, architecture)
        if general:
            writer.add_string("general.type", general)
        for key, value in fields.items():
            add = {int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool, str: writer.add_string}
            add.get(type(value), writer.add_array)(
                key if key.startswith(("tokenizer", "xielu")) else f"{architecture}.{key}", value
            )
        writer.add_tensor("token_embd.weight", np.zeros((7, 32), np.float32))
        layers = fields.get("block_count") or 1
        for name in [f"blk.{layers - 1}.attn_norm.weight", *names]:
            writer.add_tensor(name, np.zeros((2, 2), np.float32))
        for name, value in tensors.items():
            writer.add_tensor(f"{name}.weight", np.array(value, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return GgufModel(path)

    return make


def test_a_llama(made: Callable[..., GgufModel]) -> None:
    tokens = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 6}
    file = made("llama", {**LLAMA, **tokens})
    assert file.config_values["rms_norm_eps"] == 1e-5
    config = file.config()
    assert (config.vocabulary, config.layers, config.head_size, config.kv_heads) == (7, 2, 8, 2)
    assert (config.bos_token_id, config.eos_token_ids, config.tied) == (1, (2, 6), True)
    assert not made("llama", LLAMA, "output.weight").config().tied


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "phi3", "olmo2"])
def test_sizes_of_every_layer_that_are_all_the_same(architecture: str, made: Callable[..., GgufModel]) -> None:
    """Reads a list as its number: converters write one for models whose layers could differ."""
    plain = {**LLAMA, **GEMMA, "rope.dimension_count": LLAMA["embedding_length"] // LLAMA["attention.head_count"]}
    plain |= {"attention.key_length": 8, "attention.value_length": 8, "attention.head_count_kv": 2}
    if architecture != "gemma3":
        plain = {key: value for key, value in plain.items() if "swa" not in key and "window" not in key}
    expected = made(architecture, plain).config()
    lists = {key: [plain[key]] * LLAMA["block_count"] for key in ("attention.head_count", "attention.head_count_kv")}
    lists["feed_forward_length"] = [plain["feed_forward_length"]] * LLAMA["block_count"]
    assert made(architecture, {**plain, **lists}).config() == expected
    for key, values in lists.items():
        assert made(architecture, {**plain, key: values}).config() == expected


STATES = {
    **{f"ssm.{name}": size for name, size in {"state_size": 4, "group_count": 1, "conv_kernel": 4}.items()},
    "ssm.inner_size": 2 * LLAMA["embedding_length"],
    "ssm.time_step_rank": 2,
    "shortconv.l_cache": 3,
}
OWN: dict[str, dict[str, Any]] = {
    "openelm": {
        "attention.head_count": [4, 2],
        "attention.head_count_kv": [2, 1],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "feed_forward_length": [48, 24],
    },
    "step35": {"expert_weights_norm": True},
    "bitnet": {"attention.key_length": 8, "attention.value_length": 8},
    "bloom": {"feed_forward_length": 4 * LLAMA["embedding_length"]},
    "mimo2": {"attention.sliding_window_pattern": [False] * LLAMA["block_count"], "attention.value_length": 8},
    "mpt": {"feed_forward_length": 4 * LLAMA["embedding_length"], "attention.max_alibi_bias": 8.0},
    "minicpm3": {
        "attention.head_count_kv": 4,
        "attention.q_lora_rank": 12,
        "attention.kv_lora_rank": 10,
        "rope.dimension_count": 8,
    },
}
SPARSE = ("olmoe", "dots1", "glm4moe", "qwen2moe", "minimax-m2", "ernie4_5-moe", "phimoe", "llama4")

OWN_EXPERTS = ("deepseek", "deepseek2-ocr", "bailingmoe", "bailingmoe2", "arctic", "grok", "smallthinker")


def test_every_architecture_says_how_it_is_stored(made: Callable[..., GgufModel]) -> None:
    rest = {"attention.scale": 0.25, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24}
    rest |= {"interleave_moe_layer_step": 1, "expert_shared_feed_forward_length": 24}
    rest |= {"attention.sliding_window": 8, "logit_scale": 0.5}
    rest |= {f"xielu.{name}": 0.5 for name in ("alpha_p", "alpha_n", "beta", "eps")}
    encoders = {name for name, known in READERS.items() if known.encodes}  # tests/parity/gguf_encoders_test.py
    for name in set(ARCHITECTURES) - encoders - {"gemma3n"}:  # whose configuration needs tensors: _gemma_layers_test
        experts = [key for key in rest if key.startswith(("expert", "interleave")) and "shared" not in key]
        wanted = {
            "granite": ["attention.scale"],
            **dict.fromkeys(("qwen3moe", "lfm2moe"), experts),
            **dict.fromkeys(SPARSE, experts),
            "nemotron_h_moe": [*experts, "expert_shared_feed_forward_length"],
            "gpt-oss": [*experts, "attention.sliding_window"],
            "apertus": [key for key in rest if key.startswith("xielu")],
            "cohere2": ["attention.sliding_window", "logit_scale"],
            **{key: [*experts, "attention.sliding_window"] for key in ("exaone-moe", "afmoe")},
            "granitemoe": [*experts, "attention.scale"],
            **dict.fromkeys(("qwen3vlmoe", "dbrx"), experts),
            "mimo2": [*experts, "attention.sliding_window"],
            "hunyuan-moe": [*experts, "expert_shared_feed_forward_length"],
            **dict.fromkeys(OWN_EXPERTS, experts),
            "step35": [*experts, "expert_shared_feed_forward_length", "attention.sliding_window"],
        }
        fields = {**(GEMMA if name in ("gemma2", "gemma3", "gemma4") else LLAMA), "attention.layer_norm_epsilon": 1e-5}
        fields |= {key: rest[key] for key in wanted.get(name, [])}
        fields |= {"attention.key_length": 16, "attention.value_length": 16, **STATES}
        fields |= OWN.get(name, {})
        head = ["output.weight"] if name in ("phi2", "nemotron_h", "nemotron_h_moe") else []  # which are never tied
        file = made(name, OTHERS.get(name, fields), *head)
        if file.permuted or file.config().rope.mode is RopeMode.INTERLEAVED:
            assert file.config(RopeMode.INTERLEAVED).rope.mode is RopeMode.INTERLEAVED
        else:
            with pytest.raises(ConfigError, match="rows of queries and keys are stored for split_half RoPE only"):
                file.config(RopeMode.INTERLEAVED)
    assert made("llama").permuted


def test_gemmas_of_27b_scale_scores_otherwise(made: Callable[..., GgufModel]) -> None:
    for name, layers in (("gemma2", 46), ("gemma3", 62)):
        assert made(name, GEMMA).config().scale == 16**-0.5
        assert made(name, {**GEMMA, "block_count": layers}).config().scale == 8**-0.5


def test_windows_of_gemma3(made: Callable[..., GgufModel]) -> None:
    fields = {**GEMMA, "block_count": 7}
    assert made("gemma3", fields).config().windows == (8,) * 5 + (None, 8)
    assert made("gemma3", {**fields, "attention.sliding_window_pattern": 3}).config().windows[:4] == (8, 8, None, 8)
    flags = [True, False, False, True, True, True, False]
    listed = made("gemma3", {**fields, "attention.sliding_window_pattern": flags}).config()
    assert listed.windows == tuple(8 if flag else None for flag in flags)
    assert listed.local_rope is not None
    assert (listed.local_rope.base, listed.rope.base) == (10000.0, 10000.0)
    with pytest.raises(
        ConfigError, match=r"'attention.sliding_window_pattern': expected a number, or 7 \(block_count\)"
    ):
        made("gemma3", {**fields, "attention.sliding_window_pattern": flags[:3]})


def test_olmos_with_windows(made: Callable[..., GgufModel]) -> None:
    """Layers with windows have an unscaled RoPE; YaRN's factor is the file's."""
    scaled = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16}
    fields = {**LLAMA, **scaled, "rope.scaling.yarn_attn_factor": 1.25, "rope.freq_base": 500.0}
    assert made("olmo2", fields).config().architecture == "Olmo2ForCausalLM"
    config = made("olmo2", {**fields, "block_count": 5, "attention.sliding_window": 6}).config()
    assert (config.architecture, config.windows) == ("Olmo3ForCausalLM", (6, 6, 6, None, 6))
    assert config.local_rope is not None
    assert (config.rope.base, config.local_rope.base) == (500.0, 500.0)
    assert (config.rope.attention_factor, config.local_rope.attention_factor) == (1.25, 1.0)


def test_mistrals_with_and_without_growing_queries(made: Callable[..., GgufModel]) -> None:
    """One of YaRN's two weights is in the file; the other is 1."""
    assert made("mistral3", LLAMA).config().architecture == "MistralForCausalLM"
    scaled = {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 16}
    fields = {**LLAMA, **scaled, "attention.temperature_scale": 0.1, "rope.scaling.yarn_log_multiplier": 0.5}
    config = made("mistral3", fields).config()
    assert config.query_growth == QueryGrowth(0.1, 16)
    assert config.rope.attention_factor == pytest.approx((1 + 0.1 * np.log(8)) / (1 + 0.05 * np.log(8)))


def test_exaones_of_64_layers_have_windows(made: Callable[..., GgufModel]) -> None:
    assert made("exaone4", LLAMA).config().windows == (None, None)
    assert made("exaone4", {**LLAMA, "block_count": 64}).config().windows[:4] == (4096,) * 3 + (None,)


def test_a_deepseek(made: Callable[..., GgufModel]) -> None:
    """Sizes of a head are those without ``_mla`` in early files; one temperature is stored, of both kinds."""
    config, early = made("deepseek2", DEEPSEEK).config(), {
        **{key: value for key, value in DEEPSEEK.items() if not key.endswith("_mla")},
        "attention.head_count_kv": 4, "attention.key_length": 12, "attention.value_length": 8,
    }  # fmt: skip
    assert config.latent is not None
    assert (config.latent.plain_size, config.latent.value_size, config.latent.rank, config.head_size) == (8, 8, 6, 12)
    assert config.latent.scale == pytest.approx(12**-0.5 * (1 + 0.1 * np.log(8)) ** 2)
    assert config.experts is not None
    assert (config.experts.layers, config.experts.routing.groups) == ((False, True), 1)
    assert config.rope.mode is RopeMode.INTERLEAVED
    assert made("deepseek2", early).config() == config


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "lama",
        LLAMA,
        r"general.architecture: 'lama' is not supported; did you mean 'llama'.*: take",
    ),
    ("rwkv7", LLAMA, "'rwkv7' is not supported"),
    (
        "deepseek2",
        {**DEEPSEEK, "expert_gating_func": 3},
        "'expert_gating_func': expected 1, the softmax of DeepSeek-V2, or 2",
    ),
    (
        "deepseek2",
        {**DEEPSEEK, "rope.dimension_count": 12},
        r"'attention.key_length_mla': expected more than rope.dimension_count \(12\)",
    ),
    (
        "llama",
        {**LLAMA, "general": "x", "block_count": 0},
        "field 'block_count': expected an integer of at least 1; found 0",
    ),
    (
        "llama",
        {k: v for k, v in LLAMA.items() if k != "context_length"},
        r"metadata llama\.\*: field 'context_length' is",
    ),
    (
        "llama",
        {**LLAMA, "attention.head_count": [4, 2]},
        r"'attention.head_count': expected an integer .*found \[4, 2\]",
    ),
    (
        "qwen2",
        {**LLAMA, "attention.head_count_kv": [2, 1]},
        r"'attention.head_count_kv': expected an integer .*found \[2, 1\]",
    ),
    (
        "llama",
        {**LLAMA, "attention.head_count_kv": [2, 2, 2]},
        r"'attention.head_count_kv': expected an integer .*found \[2, 2, 2\]",
    ),
    (
        "llama",
        {**LLAMA, "feed_forward_length": [48, 64]},
        r"'feed_forward_length': expected an integer .*found \[48, 64\]",
    ),
    (
        "llama",
        {**LLAMA, "attention.head_count": 5},
        r"'embedding_length': expected a multiple of attention.head_count \(5\)",
    ),
    (
        "llama",
        {**LLAMA, "attention.key_length": 8, "attention.value_length": 4},
        "'attention.value_length': expected the",
    ),
    (
        "llama",
        {**LLAMA, "logit_scale": 2.0},
        "'logit_scale': expected no such field, or 0: llama files are read without",
    ),
    (
        "qwen2",
        {**LLAMA, "attention.sliding_window": 8},
        "'attention.sliding_window': expected no such field, or 0: qwen2",
    ),
    (
        "llama",
        {**LLAMA, "attention.temperature_scale": 0.1},
        "'attention.temperature_scale': expected no such field, or 0: llama files are read without",
    ),
    ("mistral3", {**LLAMA, "attention.temperature_scale": 0.1}, "'rope.scaling.original_context_length' is missing"),
    ("cohere2", {**LLAMA, "attention.layer_norm_epsilon": 1e-5}, "'logit_scale' is missing"),
    (
        "llama",
        {**LLAMA, "rope.scaling.type": "ntk"},
        "'rope.scaling.type': expected one of none, linear, yarn; found 'ntk'",
    ),
    ("llama", {**LLAMA, "rope.scaling.type": "linear"}, "'rope.scaling.factor' is missing"),
    (
        "llama",
        {**LLAMA, "rope.scaling.type": "yarn", "rope.scaling.attn_factor": 1.5},
        "'rope.scaling.attn_factor': expected 1",
    ),
    (
        "llama",
        {**LLAMA, "rope.scaling.type": "yarn", "rope.scaling.yarn_log_multiplier": 0.1},
        "multiplier': expected 0",
    ),
    ("gemma2", {k: v for k, v in GEMMA.items() if "window" not in k}, "'attention.sliding_window' is missing"),
]


@pytest.mark.parametrize(("architecture", "fields", "message"), REFUSED, ids=[message[:40] for *_, message in REFUSED])
def test_refusals(architecture: str, fields: dict[str, Any], message: str, made: Callable[..., GgufModel]) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        made(architecture, fields)
    assert "some.gguf: " in str(error.value)


def test_layers_that_are_not_there(made: Callable[..., GgufModel], tmp_path: Path) -> None:
    """Millions of layers are refused before a list of them is made."""
    made("llama", {**LLAMA, "block_count": 3})
    path = tmp_path / "some.gguf"
    field = b"llama.block_count" + (4).to_bytes(4, "little")
    content = path.read_bytes()
    path.write_bytes(content.replace(field + b"\3\0\0\0", field + b"\xff\x07\0\0"))
    with pytest.raises(ConfigError, match=r"'block_count': expected at most 3, the layers that .* found 2047"):
        GgufModel(path)


def test_files_that_hold_no_model(made: Callable[..., GgufModel], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"general.type is 'adapter', expected 'model': give the file of the model"):
        made(general="adapter")
    made()
    path = tmp_path / "some.gguf"
    path.write_bytes(path.read_bytes().replace(b"general.architecture", b"general.architectura"))
    with pytest.raises(
        ConfigError, match=r"general.architecture: expected a name; found None: convert the model again"
    ):
        GgufModel(path)


def test_early_names_of_linear_scaling(made: Callable[..., GgufModel]) -> None:
    rope = made("llama", {**LLAMA, "rope.scale_linear": 4.0}).config_values["rope_scaling"]
    assert rope == {"rope_type": "linear", "factor": 4.0}
    assert "rope_scaling" not in made("llama", {**LLAMA, "rope.scale_linear": 1.0}).config_values


def test_divisors_do_not_depend_on_the_length(made: Callable[..., GgufModel]) -> None:
    rope = made("llama", LLAMA, rope_freqs=[1.0, 1.0, 2.5, 8.0]).config().rope
    assert not rope.scaling.depends_on_length
    plain = made("llama", LLAMA).config().rope
    ratio = plain.scaling.frequencies(10000.0, 8, 64) / rope.scaling.frequencies(10000.0, 8, 64)
    np.testing.assert_allclose(ratio, [1.0, 1.0, 2.5, 8.0])
    with pytest.raises(ConfigError, match=r"'short_factor': expected a list of 4 finite numbers above 0"):
        made("llama", LLAMA, rope_freqs=[1.0, 0.0, 2.5, 8.0]).config()
