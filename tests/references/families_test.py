"""Every family against transformers and llama.cpp, by `export --verify=reference`, where these are there.

TAPELINE_REFERENCE_PYTHON names an interpreter with torch, transformers, peft, sentence-transformers and
llama-cpp-python; without it every test is skipped, for none of them is in the lock. TAPELINE_LONG=1 runs every case.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from gguf import GGUFWriter

from tapeline.reference import PYTHON_VARIABLE, ReferenceAnswer, ReferenceProcess, ReferenceRequest, kind_of
from tests.goldens.adapter_cases import ADAPTER_CASES, ADAPTERS
from tests.goldens.byte_level import byte_level_tokenizer
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.encoders.gguf_encoders import GGUF_ENCODERS, write_encoder_gguf
from tests.goldens.gguf_cases import GGUF_CASES, HYBRID_CASES, NOT_LLAMA_CPPS
from tests.goldens.gguf_files import write_gguf
from tests.goldens.samples import LONG, SAMPLE
from tests.goldens.weights import write_checkpoint
from tests.product._bundles import export

PYTHON: Final = os.environ.get(PYTHON_VARIABLE)
pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason=f"{PYTHON_VARIABLE} names no Python with transformers and llama-cpp-python, which the lock does not have",
)

_PACKAGES: Final = {"transformers": ["peft", "sentence_transformers"], "llama_cpp": []}
# For a context beyond the trained length llama.cpp takes the long factors from the first token on.
_LONG_FACTORS: Final = ("phi3_longrope_partial",)
_GGUF: Final = {
    name: case for name, case in {**GGUF_CASES, **HYBRID_CASES}.items() if name not in (*NOT_LLAMA_CPPS, *_LONG_FACTORS)
}


def _sample(names: Any, count: int) -> list[str]:
    """All names; of a default run a few, at even distances."""
    every = list(names)
    return every if LONG else every[:: max(1, len(every) // count)]


@pytest.fixture(scope="module")
def processes() -> Iterator[Callable[[ReferenceRequest, str], ReferenceAnswer]]:
    """Runs requests in one process per reference: importing torch takes longer than a tiny model."""
    running: dict[str, ReferenceProcess] = {}

    def run(request: ReferenceRequest, python: str) -> ReferenceAnswer:
        kind = kind_of(request.model)
        if kind not in running:
            running[kind] = ReferenceProcess(python, kind, _PACKAGES[kind])
        return running[kind].run(request)

    yield run
    for process in running.values():
        process.__exit__()


@pytest.fixture
def verified(
    processes: Callable[[ReferenceRequest, str], ReferenceAnswer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[dict[str, Any]]]:
    """Exports a model with --verify=reference, and returns the rows of the report."""
    monkeypatch.setattr("tapeline.exporting._reference.run_reference", processes)

    def rows(model: Path, **options: Any) -> list[dict[str, Any]]:
        path = export(model, tmp_path / "bundle", target=(), verify="reference", **options)
        made = json.loads((path / "report.json").read_text())["verification"]
        return [row for row in made if "skipped" not in row and row["device"] != "tokenizer"]

    return rows


@pytest.mark.parametrize("name", SAMPLE)
def test_decoders_against_transformers(name: str, verified: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_checkpoint(model, CASES[name])
    rows = verified(model)
    assert rows
    assert all(row["reference"].startswith("transformers ") for row in rows)


# Scores of tokens are not run by the reference.
@pytest.mark.parametrize("name", _sample([name for name, case in ENCODER_CASES.items() if not case.score], 6))
def test_encoders_against_transformers(name: str, verified: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_encoder_checkpoint(model, ENCODER_CASES[name])
    _complete_modules(model, ENCODER_CASES[name])
    assert verified(model)


# Of two tied tables, PEFT's live model gives each its own rows, and its merge gives both the rows of both.
_ADAPTERS = [case for case in ADAPTER_CASES.values() if LONG or case.name in ("two_ranks", "tied_tokens_of_both")]


@pytest.mark.parametrize("case", _ADAPTERS, ids=lambda case: case.name)
def test_adapters_against_peft(case: Any, verified: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_checkpoint(model, CASES[case.model])
    weights = enumerate(case.weights)
    adapters = [f"{ADAPTERS / case.name / str(place)}={weight:g}" for place, weight in weights]
    assert verified(model, adapter=adapters)


@pytest.mark.parametrize("name", _sample(_GGUF, 6))
def test_gguf_files_against_llama_cpp(name: str, verified: Any, tmp_path: Path) -> None:
    case = _GGUF[name]
    path = tmp_path / f"{name}.gguf"
    write_gguf(path, case, tokenizer=functools.partial(_add_tokens, case.config.get("vocab_size", 0)))
    rows = verified(path)
    assert rows
    assert all(row["reference"].startswith("llama-cpp-python ") for row in rows)


@pytest.mark.parametrize("name", _sample(GGUF_ENCODERS, 2))
def test_gguf_encoders_against_llama_cpp(name: str, verified: Any, tmp_path: Path) -> None:
    case = ENCODER_CASES[name]
    path = tmp_path / f"{name}.gguf"
    write_encoder_gguf(path, case, tokenizer=functools.partial(_add_tokens, case.config["vocab_size"]))
    assert verified(path)


def _add_tokens(count: int, writer: GGUFWriter) -> None:
    """Adds the number of tokens alone: prompts are ids."""
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(count)


def _complete_modules(model: Path, case: EncoderCase) -> None:
    """Adds what sentence-transformers needs and Tapeline does not: paths, the size of vectors, a tokenizer."""
    path = model / "modules.json"
    if not path.exists():
        return
    modules = json.loads(path.read_text())
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        module |= {"name": str(module["idx"]), "path": f"{module['idx']}_{kind}" if module["idx"] else ""}
    path.write_text(json.dumps(modules))
    pooling = model / "1_Pooling" / "config.json"
    size = case.config.get("hidden_size", case.config.get("d_model"))
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "word_embedding_dimension": size}))
    last = case.config["vocab_size"] - 1
    letters = {chr(33 + index): index for index in range(min(90, last))}
    letters["<|endoftext|>"] = last  # Qwen2's class adds it
    (model / "tokenizer.json").write_text(json.dumps(byte_level_tokenizer(letters, [])))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
