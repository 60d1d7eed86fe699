"""Ids and texts of transformers' ``MarianTokenizer`` with tiny models of SentencePiece: run by hand, outside Bazel.

python -m tests.goldens.translation.make_marian_goldens
"""

import base64
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import sentencepiece
import transformers

from tests.goldens.translation.files import MARIAN

_WORDS: Final = {
    "source": "the cat sat on the mat . a big red house stands by a tree and dogs run with us ! how are you today ?",
    "target": "le chat est assis sur le tapis . une grande maison rouge près d' un arbre et le chien court avec nous !",
}
_TEXTS: Final = (
    "the cat sat on the mat.",
    ">>fra<< how are you today?",
    "  big   red  près 日本 tree ",
    "dog</s> runs <pad>zebra",
    ">>deu<< a mat",
)


def main() -> int:
    """Make the file."""
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        vocabulary = {"</s>": 0, "<unk>": 1}
        for side, words in _WORDS.items():
            text = directory / f"{side}.txt"
            text.write_text("\n".join(" ".join(draw.choices(words.split(), k=8)) for _ in range(300)))
            options: Any = {"normalization_rule_name": "identity", "bos_id": -1, "eos_id": 0, "unk_id": 1, "pad_id": -1}
            sentencepiece.SentencePieceTrainer.train(
                input=str(text), model_prefix=str(directory / side), vocab_size=44, character_coverage=1.0, **options
            )
            (directory / f"{side}.model").rename(directory / f"{side}.spm")
            model: Any = sentencepiece.SentencePieceProcessor(str(directory / f"{side}.spm"))
            for place in range(model.get_piece_size()):
                vocabulary.setdefault(model.id_to_piece(place), len(vocabulary))
        vocabulary |= {">>fra<<": len(vocabulary), "<pad>": len(vocabulary) + 1}
        (directory / "vocab.json").write_text(json.dumps(vocabulary))
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
        (directory / "config.json").write_text(json.dumps({"model_type": "marian"}))
        tokenizer: Any = transformers.MarianTokenizer.from_pretrained(directory)
        answers = [[draw.randrange(len(vocabulary)) for _ in range(8)] for _ in range(12)]
        kept = ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json", "config.json")
        golden = {
            "script": "tests/goldens/translation/make_marian_goldens.py",
            "transformers": transformers.__version__,
            "files": {file: base64.b64encode((directory / file).read_bytes()).decode() for file in kept},
            "sources": [[text, tokenizer(text)["input_ids"]] for text in _TEXTS],
            "answers": [[ids, tokenizer.decode(ids, skip_special_tokens=True)] for ids in answers],
        }
    MARIAN.write_text(f"{json.dumps(golden, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
