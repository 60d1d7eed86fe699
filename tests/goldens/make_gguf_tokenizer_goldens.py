"""Ids that transformers gives with tokenizers from GGUF files: data/gguf_tokenizers.json.

Run outside of Bazel, with transformers, tokenizers and gguf installed:

    PYTHONPATH=. python tests/goldens/make_gguf_tokenizer_goldens.py

The vocabularies are trained here, without regard to words, so that merges across the borders of words and digits exist:
a tokenizer that cuts text otherwise gives other ids.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import gguf
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

_OUTPUT: Final = Path(__file__).parent / "data" / "gguf_tokenizers.json"

CORPUS: Final = [
    "The tape tells the whole story, isn't it? We'll see: 1, 22, 333, 4444 and 1234567.",
    "Leading, trailing  and   inner    spaces ",
    "new\nlines\n\nand\r\n\r\ntabs\t\tand \n mixed  \n\n  ends",
    "über naïve façade, 日本語のテキスト, русский, العربية, ไทย",
    "emoji 🙂🙃👩‍👩‍👧 and \U0001d518\U0001d52b\U0001d526, combining: é",
    "CamelCaseWords and SHOUTING and snake_case_names; i++ != --j && x[3]==y",
    "'S 'Ll I'VE it's",
    "x",
    "http://example.com/path?query=1&other=2#fragment",
    "1.000,50 € + ½ = ²³",
]
_TEXT: Final = CORPUS * 3 + ["the tape is the tape and a token is a piece of the text", "1234 22 333 33 44 4444"]


def _bytes_vocabulary() -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|begin|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=620, special_tokens=special, initial_alphabet=alphabet, show_progress=False, max_token_length=6
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return _fields(tokenizer, special, user=["<think>"])


def _pieces_vocabulary() -> dict[str, Any]:
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.decoder = decoders.ByteFallback()
    trainer = trainers.BpeTrainer(
        vocab_size=520, special_tokens=special, limit_alphabet=60, show_progress=False, max_token_length=6
    )
    tokenizer.train_from_iterator([text.replace(" ", "▁") for text in _TEXT], trainer)
    fields = _fields(tokenizer, special[:3], user=["<think>"])
    fields["types"][0] = 2
    fields["types"][3:259] = [6] * 256
    rank = {left + right: index for index, (left, right) in reversed(list(enumerate(fields.pop("merges"))))}
    fields["scores"] = [float(-rank.get(token, 5000 + index)) for index, token in enumerate(fields["tokens"])]
    return fields


def _fields(tokenizer: Tokenizer, special: list[str], user: list[str]) -> dict[str, Any]:
    state = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(state["vocab"].items(), key=lambda item: item[1])] + user
    types = [3 if token in special else 4 if token in user else 1 for token in tokens]
    return {"tokens": tokens, "types": types, "merges": [tuple(pair) for pair in state["merges"]]}


def _ids(architecture: str, model: str, pre: str | None, fields: dict[str, Any], texts: list[str]) -> list[list[int]]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "some.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_tokenizer_model(model)
        if pre is not None:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list(fields["tokens"])
        writer.add_token_types(fields["types"])
        if "merges" in fields:
            writer.add_token_merges([" ".join(pair) for pair in fields["merges"]])
        else:
            writer.add_token_scores(fields["scores"])
        writer.add_bos_token_id(fields["tokens"].index("<|begin|>" if "merges" in fields else "<s>"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        name, state, _ = get_gguf_tokenizer(str(path))
        tokenizer, _ = convert_gguf_tokenizer(name, state)
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def main() -> None:
    """Writes the file."""
    parts, pieces = _bytes_vocabulary(), _pieces_vocabulary()
    texts = [*CORPUS, "a <think> b<think>", "<|end|>x</s>y"]
    cases = [("llama", "gpt2", pre) for pre in ("gpt-2", "llama-bpe", "dbrx", "qwen2", "tekken", "gpt-4o")]
    cases += [("phi3", "llama", None), ("gemma2", "llama", None)]
    golden = {
        "made_by": "tests/goldens/make_gguf_tokenizer_goldens.py",
        "transformers": transformers.__version__,
        "gguf": "0.19",
        "texts": texts,
        "vocabularies": {"gpt2": parts, "llama": pieces},
        "cases": [
            {"architecture": arch, "model": model, "pre": pre,
             "ids": _ids(arch, model, pre, parts if model == "gpt2" else pieces, texts)}
            for arch, model, pre in cases
        ],
    }  # fmt: skip
    _OUTPUT.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
