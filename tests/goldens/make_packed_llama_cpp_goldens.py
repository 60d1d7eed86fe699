"""Measures how far llama.cpp's logits with packed weights are from those without: data/packed_llama_cpp.json.

Run outside of Bazel, with llama-cpp-python (docs/benchmarks.md says how it is built), gguf, ml_dtypes, numpy,
safetensors and tokenizers installed:

    PYTHONPATH=. python tests/goldens/make_packed_llama_cpp_goldens.py

Of the same tokens, a text in a call; caches in f32 and attention as it is written down, so that
nothing but weights and what they are multiplied with is rounded. What it is compared with is llama.cpp on the same
weights in f32; of Q4_K and Q6_K on what their blocks say, in f32, so that what is left is the rounding of x.
"""

import ctypes
import importlib.metadata
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import llama_cpp
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from tokenizers import Tokenizer

from tests.goldens.gguf_files import write_gguf
from tests.goldens.k_quants import quantize
from tests.goldens.packed_models import PackedModel, nmse, packed_models, super_block_model

_FILE: Final = Path(__file__).parent / "data" / "packed_llama_cpp.json"
_DEMO: Final = Path(__file__).parents[2] / "tools" / "demo"
_TOKENS: Final = 64


def _texts(directory: Path) -> list[list[int]]:
    """Returns texts that the demo model knows and texts that it does not, after its first token."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    sources = [(_DEMO / name).read_text() for name in ("corpus.txt", "passages.txt")]
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in sources]
    return [[0, *text[start : start + _TOKENS - 1]] for text in ids for start in range(0, 800, 200)]


def _logits(path: Path, texts: list[list[int]]) -> np.ndarray:
    """f32 [B, T, V]."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 512
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.type_k = parameters.type_v = llama_cpp.GGML_TYPE_F32
    parameters.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, parameters)
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    arrays = np.empty((len(texts), _TOKENS, count), np.float32)
    for row, ids in zip(arrays, texts, strict=True):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        _run(context, ids)
        for place in range(_TOKENS):
            logits = ctypes.string_at(llama_cpp.llama_get_logits_ith(context, place), 4 * count)
            row[place] = np.frombuffer(logits, np.float32)
    return arrays


def _run(context: Any, ids: list[int]) -> None:
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token_id in enumerate(ids):
        batch.token[place], batch.pos[place], batch.n_seq_id[place] = token_id, place, 1
        batch.seq_id[place][0], batch.logits[place] = 0, 1
    code = llama_cpp.llama_decode(context, batch)
    if code:
        raise SystemExit(f"llama_decode gave {code}")


def _no_vocabulary(size: int) -> Any:
    def add(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("no_vocab")
        writer.add_vocab_size(size)

    return add


def _figures(directory: Path, model: PackedModel, texts: list[list[int]]) -> dict[str, float]:
    arrays: dict[str, np.ndarray] = {}
    for name in ("F32", "Q8_0", "Q4_0"):
        arrays[name.lower()] = _packed_logits(directory, model, GGMLQuantizationType[name], texts)
    return {name: nmse(logits, arrays["f32"]) for name, logits in arrays.items() if name != "f32"}


def _super_figures(directory: Path, texts: list[list[int]]) -> dict[str, float]:
    figures, model = dict[str, float](), super_block_model()
    for name in ("Q4_K", "Q6_K"):
        kind = GGMLQuantizationType[name]
        unpacked = {
            key: quants.dequantize(quantize(array, kind), kind) if array.ndim > 1 else array
            for key, array in model.weights.items()
        }
        exact = _packed_logits(directory, PackedModel(model.case, unpacked), GGMLQuantizationType.F32, texts)
        figures[name.lower()] = nmse(_packed_logits(directory, model, kind, texts), exact)
    return figures


def _packed_logits(
    directory: Path, model: PackedModel, kind: GGMLQuantizationType, texts: list[list[int]]
) -> np.ndarray:
    path = directory / f"{kind.name}.gguf"
    write_gguf(
        path,
        model.case,
        pack=lambda *_: kind,
        tokenizer=_no_vocabulary(model.case.config["vocab_size"]),
        weights=model.weights,
    )
    return _logits(path, texts)


def main() -> None:
    """Writes the file."""
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as name:
        models = packed_models(Path(name) / "demo")
        texts = _texts(Path(name) / "demo")
        figures = {kind: _figures(Path(name), model, texts) for kind, model in models.items()}
        of_x = _super_figures(Path(name), texts)
    golden = {
        "made_by": "tests/goldens/make_packed_llama_cpp_goldens.py",
        "versions": {package: importlib.metadata.version(package) for package in ("llama-cpp-python", "gguf", "numpy")},
        "machine": f"{platform.machine()}: {llama_cpp.llama_print_system_info().decode()}",
        "nmse": figures,
        "nmse_of_x": of_x,
        "tokens": texts,
    }
    _FILE.write_text(json.dumps(golden, separators=(",", ":")).replace("],[", "],\n[") + "\n")
    sys.stdout.write(_FILE.read_text())


if __name__ == "__main__":
    main()
