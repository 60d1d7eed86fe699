"""Whatever is wrong in a GGUF file's header, it is read or refused: no other error, and nothing large is allocated."""

import contextlib
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import InputError
from tapeline.text import gguf_tokenizer
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from transformer_core.checkpoints import audit
from transformer_core.models import DecoderLM, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel

_MODELS = ("llama_gqa", "gemma3", "qwen3_moe", "phi3_longrope_partial")


def _tokenizer(writer: GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", *"abc", "ab", "abc"])
    writer.add_token_scores([0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0])
    writer.add_token_types([2, 3, 1, 1, 1, 1, 1])
    writer.add_bos_token_id(1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Whole files, by model."""
    folder, contents = tmp_path_factory.mktemp("whole"), {}
    for name in _MODELS:
        write_gguf(folder / name, CASES[name], tokenizer=_tokenizer)
        contents[name] = (folder / name).read_bytes()
    return contents


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "damaged.gguf"


def _use(path: Path) -> None:
    """All that an export does before it copies weights, and the first rows of each."""
    with GgufModel(path) as file:
        gguf_tokenizer(file.metadata, file.path)
        model = DecoderLM(file.config())
        audit(file, stored_specs(model, file), tied=tied_keys(model, file), ignorable=unused_keys(model, file))
        weights = weights_of(model, file)
        for name, _ in model.named_parameters():
            weights.read_rows(name, 0, 1)


def _header_end(content: bytes | bytearray) -> int:
    return content.rindex(b"weight") + 64


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_change_is_read_or_refused(files: dict[str, bytes], scratch: Path, data: st.DataObject) -> None:
    content = bytearray(files[data.draw(st.sampled_from(_MODELS))])
    end = _header_end(content)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    scratch.write_bytes(content)
    tracemalloc.start()
    try:
        with contextlib.suppress(InputError):
            _use(scratch)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("name", _MODELS)
def test_every_field_matters_or_not(name: str, files: dict[str, bytes], scratch: Path) -> None:
    """Each byte of metadata set to its extremes: huge sizes, negative ones, NaNs."""
    content = files[name]
    scratch.write_bytes(content)
    _use(scratch)
    refused = 0
    for place in range(24, content.index(b"tokenizer.ggml.tokens"), 9):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        scratch.write_bytes(changed)
        try:
            _use(scratch)
        except InputError:
            refused += 1
    assert refused > 5
