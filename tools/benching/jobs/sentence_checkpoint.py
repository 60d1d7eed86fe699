"""Not measured: writes a model of sentence-transformers with random weights, and a tokenizer of whole words."""

import json
from pathlib import Path
from typing import Any

from lang_core import f32
from tools.benching.jobs._measure import serve
from transformer_core.models import write_random_model

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``directory``; ``config``: fields of its config.json; ``words`` of its tokenizer.
    """
    directory = Path(arguments["directory"])
    directory.mkdir()
    config = directory.parent / "sentence_config.json"
    config.write_text(json.dumps(arguments["config"]))
    write_random_model(directory, config, f32)
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds)
    ]
    size, longest = arguments["config"]["hidden_size"], arguments["config"]["max_position_embeddings"]
    tokens = [*_SPECIAL, *arguments["words"]]
    files: dict[str, Any] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": longest // 2, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": size, "pooling_mode_mean_tokens": True},
        "tokenizer_config.json": {
            "tokenizer_class": "BertTokenizer",
            "model_max_length": longest,
            "do_lower_case": True,
            **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), _SPECIAL, strict=True)),
        },
        "tokenizer.json": _tokenizer({token: number for number, token in enumerate(tokens)}),
    }
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    (directory / "2_Normalize").mkdir()
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    return {}


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, Any]:
    """Returns a tokenizer.json of a BERT."""
    first, last = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]"))
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **added} for number, token in enumerate(_SPECIAL)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, text, last],
            "pair": [first, text, last, *second],
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


if __name__ == "__main__":
    serve(run)
