"""Sizes of the measured models, whole or tiny."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lang_core import f32
from tools.benching.suites._decode_rows import GROUPS, TINY_GROUPS, Group
from tools.benching.suites._experts import DEEPSEEK_V3, MIXTRAL_8X22B, TINY_EXPERTS
from tools.benching.suites._peer import Peer
from tools.benching.suites._picture_peer import PicturePeer
from tools.benching.suites._sentence_peer import SentencePeer
from tools.benching.suites._serve_peer import ServerPeer
from tools.benching.suites._serve_rows import SERVE_GROUPS, TINY_SERVE_SIZES, ServeGroup, ServeSizes
from tools.benching.suites._speech_peer import SpeechPeer
from tools.benching.suites._torch_peer import TorchPeer
from transformer_core.checkpoints import LLAMA_PRESETS, LlamaSizes, llama_config

MIB: Final = float(2**20)
TINYLLAMA: Final = LLAMA_PRESETS["tinyllama-1.1b"]
_ARCHIVED: Final = TINYLLAMA._replace(layers=8)  # 967 MB in bf16
TINY: Final = LLAMA_PRESETS["tiny"]
# https://huggingface.co/meta-llama/Llama-3.1-405B: the sizes and the RoPE of its config.json.
LLAMA_405B: Final = LlamaSizes(126, 16384, 53248, 128, 8, 128256, 131072)
_EXPERTS: Final = {"DeepSeek-V3": DEEPSEEK_V3, "Mixtral 8x22B": MIXTRAL_8X22B}
_KERNEL_CASES: Final = {
    "attention, 512 tokens": {
        "kernel": "attention",
        "heads": 8,
        "shared": 2,
        "queries": 512,
        "keys": 512,
        "size": 64,
    },
    "attention, a token and 1,024 keys": {
        "kernel": "attention",
        "heads": 8,
        "shared": 2,
        "queries": 1,
        "keys": 1024,
        "size": 64,
    },
    "linear, 64 rows, 640 to 1,408": {"kernel": "linear", "rows": 64, "inputs": 640, "outputs": 1408},
    "linear, a row, 640 to 1,408": {"kernel": "linear", "rows": 1, "inputs": 640, "outputs": 1408},
    **{
        f"linear, a row, 640 to 1,408, {layout}": {
            "kernel": "linear",
            "rows": 1,
            "inputs": 640,
            "outputs": 1408,
            "layout": layout,
        }
        for layout in ("q8_0", "q4_0")
    },
}
_TINY_KERNEL_CASES: Final = {
    "attention": {"kernel": "attention", "heads": 2, "shared": 1, "queries": 3, "keys": 5, "size": 4},
    "linear": {"kernel": "linear", "rows": 2, "inputs": 5, "outputs": 7},
    "linear, q4_0": {"kernel": "linear", "rows": 2, "inputs": 32, "outputs": 7, "layout": "q4_0"},
}
# https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2: the sizes of its config.json.
_MINILM: Final = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
_TINY_BERT: Final = _MINILM | {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
    "vocab_size": 200,
}
# https://huggingface.co/google/vit-base-patch16-224: the sizes of its config.json.
_VIT: Final = {
    "architectures": ["ViTModel"],
    "model_type": "vit",
    "hidden_act": "gelu",
    "hidden_size": 768,
    "image_size": 224,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_hidden_layers": 12,
    "patch_size": 16,
}
_TINY_VIT: Final = _VIT | {
    "hidden_size": 24,
    "image_size": 12,
    "intermediate_size": 40,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "patch_size": 4,
}
_LLAMA_31_ROPE: Final = {
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and cases that the suites measure.

    Attributes:
        model: whose forward is lowered.
        sequence: of tokens in it.
        layers: numbers of layers; the first one is what growth is measured from.
        peer_layers: the peer is measured up to so many.
        blocks: numbers of layers of the smallest model.
        chain_nodes: numbers of nodes of one function without blocks, in one block, and in blocks that all differ.
        large: the model that is lowered as prefill and decode.
        experts: models with mixtures of experts by name, as config.json has them, that are lowered likewise.
        capacity: of its caches.
        archive: the model whose checkpoint becomes an archive.
        dump_tensors: how many tensors go into a dump.
        dump_tensor_bytes: of each.
        chain: ops of the plainest recording.
        calls: of an op in a row.
        repeats: of what is repeated inside a process.
        decoder: the model that generates.
        decode_groups: how it is exported, and what takes turns.
        prompt: of so many tokens; the chunk of a bundle's prefill.
        long_context: of so many tokens.
        steps: from empty caches, and after the long context; both together fit into ``capacity``.
        first_prompt: of so many tokens, whose first answer is waited for.
        peer: that takes part in decode.
        engine_bits: kinds of weights of the bundles that take turns in both engines.
        engine_device: device of both engines, by the name that both have for it; the CPU where None.
        engine_peer: takes turns with the engines.
        page_bits: encodings of the weights of the bundles whose slots are compared.
        page_sizes: positions of a page.
        page_capacity: positions of a row.
        page_contexts: positions that are filled when steps are timed, ascending.
        page_rows: how many rows step at once; the most are the slots.
        page_steps: of a turn.
        page_mix: lengths of sequences that are to share memory.
        row_bits: kinds of weights of the bundles whose steps of several rows are measured.
        row_counts: how many rows step at once, ascending; the most are the slots.
        row_capacity: positions of a row.
        row_steps: of a turn.
        bandwidth_bytes: of the array that shows how fast memory is read.
        bandwidth_repeats: how often it is read; the best counts.
        kernel_devices: where compiled kernels are called; the first one is tuned for.
        kernel_calls: rows, inputs and outputs of linear layers whose calls are timed.
        kernel_sample_s: about how long a sample of them lasts.
        kernel_cases: calls that are tuned, by name; see the job ``kernel_gains``.
        kernel_tuning_rounds: the tuner's samples of each candidate.
        serve_groups: models that are served.
        serve: what clients of the servers ask for.
        activations: what x of packed products is in serve's exports, one beside the other: exact, or q8 as the peer's.
        server: the peer that takes part in serve.
        checkpoint: a Hugging Face directory for whole exports, none of which are measured without; the model that takes
            turns in both engines, ``decoder`` without.
        export_layers: only so many of its layers.
    """

    model: LlamaSizes = TINYLLAMA
    sequence: int = 32
    layers: tuple[int, ...] = (22, 80, 500)
    peer_layers: int = 500
    blocks: tuple[int, int] = (22, 10_000)
    chain_nodes: tuple[int, int] = (1000, 100_000)
    large: LlamaSizes = LLAMA_405B
    experts: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _EXPERTS)
    capacity: int = 2048
    archive: LlamaSizes = _ARCHIVED
    dump_tensors: int = 64
    dump_tensor_bytes: int = 8 << 20
    chain: int = 20_000
    calls: int = 2000
    repeats: int = 15
    decoder: LlamaSizes = TINYLLAMA
    decode_groups: tuple[Group, ...] = GROUPS
    prompt: int = 128
    long_context: int = 1000
    steps: int = 64
    first_prompt: int = 32
    peer: Peer | None = None
    engine_bits: tuple[str, ...] = ("f32", "bf16", "q8_0", "q4_0")
    engine_device: str | None = None
    engine_peer: TorchPeer | None = None
    page_bits: tuple[str, ...] = ("q4_0",)
    page_sizes: tuple[int, ...] = (32, 128)
    page_capacity: int = 4096
    page_contexts: tuple[int, ...] = (500, 2000, 4000)
    page_rows: tuple[int, ...] = (1, 4)
    page_steps: int = 16
    page_mix: tuple[int, ...] = (4000, 2000, 500, 500, 500)
    row_bits: tuple[str, ...] = ("bf16", "q8_0", "q4_0")
    row_counts: tuple[int, ...] = (1, 2, 4, 8, 16)
    row_capacity: int = 128
    row_steps: int = 16
    sentences: int = 256
    sentence_words: tuple[int, int] = (5, 60)
    sentence_config: Mapping[str, Any] = field(default_factory=lambda: _MINILM)
    sentence_model: Path | None = None
    sentence_peer: SentencePeer | None = None
    pictures: int = 10
    picture_config: Mapping[str, Any] = field(default_factory=lambda: _VIT)
    picture_peer: PicturePeer | None = None
    speech_model: Path | None = None
    speech_file: Path | None = None
    speech_peer: SpeechPeer | None = None
    bandwidth_bytes: int = 1 << 30
    bandwidth_repeats: int = 5
    kernel_devices: tuple[str, ...] = ("local-task", "local-sync")
    kernel_calls: tuple[tuple[int, int, int], ...] = ((16, 24, 40), (96, 160, 192), (192, 288, 320))
    kernel_sample_s: float = 0.02
    kernel_cases: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _KERNEL_CASES)
    kernel_tuning_rounds: int = 5
    serve_groups: tuple[ServeGroup, ...] = SERVE_GROUPS
    serve: ServeSizes = field(default_factory=ServeSizes)
    activations: tuple[str, ...] = ("exact",)
    server: ServerPeer | None = None
    checkpoint: Path | None = None
    export_layers: int | None = None


def tiny_plan(checkpoint: Path | None = None) -> Plan:
    """Everything at a size that takes no time, to see that it works; the figures mean nothing."""
    return Plan(
        model=TINY,
        sequence=5,
        layers=(2, 3),
        peer_layers=2,
        blocks=(2, 4),
        chain_nodes=(80, 160),
        large=TINY._replace(positions=16384),
        experts={"tiny": TINY_EXPERTS},
        capacity=16,
        archive=TINY,
        dump_tensors=2,
        dump_tensor_bytes=4096,
        chain=20,
        calls=3,
        repeats=2,
        decoder=TINY,
        decode_groups=TINY_GROUPS,
        prompt=5,
        long_context=11,
        steps=3,
        first_prompt=4,
        engine_bits=("bf16", "q8_0"),
        page_sizes=(16, 32),
        page_capacity=64,
        page_contexts=(5, 40),
        page_rows=(1, 2),
        page_steps=3,
        page_mix=(60, 20, 5),
        row_bits=("q4_0",),
        row_counts=(1, 2),
        row_capacity=32,
        row_steps=3,
        sentences=9,
        sentence_words=(1, 20),
        sentence_config=_TINY_BERT,
        pictures=2,
        picture_config=_TINY_VIT,
        bandwidth_bytes=1 << 16,
        bandwidth_repeats=1,
        kernel_devices=("local-sync",),
        kernel_calls=((2, 3, 5),),
        kernel_sample_s=1e-4,
        kernel_cases=_TINY_KERNEL_CASES,
        kernel_tuning_rounds=1,
        serve_groups=(ServeGroup("Q8_0"),),
        serve=TINY_SERVE_SIZES,
        checkpoint=checkpoint,
    )


def config_of(sizes: LlamaSizes, layers: int | None = None) -> dict[str, Any]:
    """The ``config.json`` of a Llama, f32."""
    return llama_config(sizes if layers is None else sizes._replace(layers=layers), f32)


def large_config(sizes: LlamaSizes) -> dict[str, Any]:
    """The ``config.json`` of a Llama 3.1, with its RoPE."""
    return llama_config(sizes, f32) | _LLAMA_31_ROPE
