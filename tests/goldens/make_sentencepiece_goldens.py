"""Trained models of SentencePiece, and answers of ``AutoTokenizer`` and SentencePiece: data/drawn_sentencepiece.json.

Run outside of Bazel, with transformers (5.23), tokenizers and sentencepiece installed:

    PYTHONPATH=. python tests/goldens/make_sentencepiece_goldens.py

With two numbers it prints the answers to so many directories from the first seed on, a line of JSON each:

    PYTHONPATH=. python tests/goldens/make_sentencepiece_goldens.py 1000 500
"""

import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import sentencepiece
import transformers
from transformers import AutoTokenizer

from tests.goldens.drawn_sentencepiece import CORPUS, MESSAGES, DrawnPieces, draw_pieces, packed

_OUTPUT: Final = Path(__file__).parent / "data" / "drawn_sentencepiece.json"
_COUNT: Final = 60


def trained(drawn: DrawnPieces) -> bytes:
    """Returns the bytes of a model, trained by SentencePiece."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*CORPUS] * 3),
        model_writer=written,
        hard_vocab_limit=False,
        minloglevel=3,
        num_threads=1,
        **drawn.training,
    )
    return written.getvalue()


def answer(drawn: DrawnPieces) -> dict[str, Any]:
    """Returns what transformers and SentencePiece make of a directory; ``error`` if transformers refuses it."""
    model = trained(drawn)
    own: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
    known: dict[str, Any] = {
        "seed": drawn.seed,
        "model": packed(model),
        "sentencepiece": [own.encode(text) for text in drawn.texts],
    }
    with tempfile.TemporaryDirectory() as folder:
        drawn.write(Path(folder), model)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            return {**known, "class": type(tokenizer).__name__, **_answers(tokenizer, drawn)}
        except Exception as error:  # noqa: BLE001 - whatever transformers raises, it refuses
            return {**known, "error": f"{type(error).__name__}: {error}"[:200]}


def _answers(tokenizer: Any, drawn: DrawnPieces) -> dict[str, Any]:
    ids = [tokenizer(text).input_ids for text in drawn.texts]
    pair = tokenizer(drawn.texts[0], drawn.texts[1], return_token_type_ids=True)
    answers: dict[str, Any] = {
        "ids": ids,
        "plain_ids": [tokenizer(text, add_special_tokens=False).input_ids for text in drawn.texts],
        "pair": [pair["input_ids"], pair["token_type_ids"]],
        "decoded": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
        "decoded_whole": [tokenizer.decode(one, skip_special_tokens=False) for one in ids],
        "tokens": tokenizer.special_tokens_map,
        "stop": tokenizer.eos_token_id,
    }
    if tokenizer.chat_template:
        answers["chat"] = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
        encoded = tokenizer.apply_chat_template(MESSAGES, tokenize=True)
        answers["chat_ids"] = encoded if isinstance(encoded, list) else encoded["input_ids"]
    return answers


def main() -> None:
    """Writes the file, or prints answers."""
    if len(sys.argv) > 1:
        first, count = map(int, sys.argv[1:])
        for seed in range(first, first + count):
            print(json.dumps(answer(draw_pieces(seed)), ensure_ascii=False), flush=True)
        return
    golden = {
        "made_by": "tests/goldens/make_sentencepiece_goldens.py",
        "transformers": transformers.__version__,
        "sentencepiece": sentencepiece.__version__,
        "answers": [answer(draw_pieces(seed, maps=False)) for seed in range(_COUNT)],
    }
    _OUTPUT.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
