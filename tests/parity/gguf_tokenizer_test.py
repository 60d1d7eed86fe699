"""Tokenizers of GGUF files give transformers' ids (``tests/goldens/make_gguf_tokenizer_goldens.py``)."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from tapeline.text import Tokenizer, write_gguf_tokenizer
from tests.goldens.golden_files import DATA
from transformer_core.checkpoints.gguf import GgufFile

_GOLDEN: dict[str, Any] = json.loads((DATA / "gguf_tokenizers.json").read_text())


def write(path: Path, architecture: str, model: str, pre: str | None, fields: dict[str, Any]) -> None:
    """Writes a file with a tokenizer and nothing else."""
    writer = GGUFWriter(path, architecture)
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(fields["tokens"])
    writer.add_token_types(fields["types"])
    if "merges" in fields:
        writer.add_token_merges([" ".join(pair) for pair in fields["merges"]])
    else:
        writer.add_token_scores(fields["scores"])
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("case", _GOLDEN["cases"], ids=lambda case: f"{case['architecture']}-{case['pre']}")
def test_ids_are_transformers(case: dict[str, Any], tmp_path: Path) -> None:
    fields = _GOLDEN["vocabularies"][case["model"]]
    write(tmp_path / "some.gguf", case["architecture"], case["model"], case["pre"], fields)
    file = GgufFile(tmp_path / "some.gguf")
    write_gguf_tokenizer(file.metadata, file.path, tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    for text, expected in zip(_GOLDEN["texts"], case["ids"], strict=True):
        assert tokenizer.encode(text) == expected, text
        if "<|" not in text and case["model"] == "gpt2" and case["pre"] != "qwen2":
            assert tokenizer.decode(expected) == text
