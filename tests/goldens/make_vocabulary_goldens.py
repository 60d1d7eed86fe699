"""llama.cpp's ids of drawn texts with drawn vocabularies: data/drawn_vocabularies.json.

Run outside of Bazel, with llama-cpp-python, tokenizers and gguf installed:

    PYTHONPATH=. python tests/goldens/make_vocabulary_goldens.py

With two numbers and ``tied`` it prints those of drawn vocabularies in which scores are equal, from the first number on;
with ``spelled`` those of vocabularies in which letters of tokens are no tokens.
With two numbers it prints the ids of so many texts, drawn from the first number, a line of JSON for each vocabulary:

    PYTHONPATH=. python tests/goldens/make_vocabulary_goldens.py 1000 2000
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import llama_cpp

from tests.goldens.drawn_vocabularies import (
    SURROUNDED,
    Vocabulary,
    flagged,
    spelled,
    texts,
    tied,
    untyped,
    vocabularies,
    write,
)

_OUTPUT: Final = Path(__file__).parent / "data" / "drawn_vocabularies.json"
_COUNT: Final = 12
_TIED: Final = 60
_SPELLED: Final = 80


def ids(vocabulary: Vocabulary, drawn: list[str], *, surrounded: bool = False) -> dict[str, Any]:
    """Returns llama.cpp's ids of texts, with or without the tokens around them; ``error`` if it refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        write(path, vocabulary)
        try:
            model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        except ValueError as error:
            return {"name": vocabulary.name, "error": str(error)}
        found = [model.tokenize(text.encode(), add_bos=surrounded, special=True) for text in drawn]
    return {"name": vocabulary.name, "ids": found}


def main() -> None:
    """Writes the file, or prints ids."""
    seed, count = map(int, sys.argv[1:3]) if len(sys.argv) > 1 else (0, _COUNT)
    for name, draw in (("tied", tied), ("spelled", spelled)):
        if name in sys.argv:
            for number in range(seed, seed + count):
                print(json.dumps(ids(*draw(number))), flush=True)
            return
    drawn = texts(seed, count)
    answers = (ids(vocabulary, drawn) for vocabulary in vocabularies())
    if len(sys.argv) > 1:
        for answer in answers:
            print(json.dumps(answer), flush=True)
        return
    golden = {
        "made_by": "tests/goldens/make_vocabulary_goldens.py",
        "llama_cpp": llama_cpp.__version__,
        "answers": [*answers],
        "tied": [ids(*tied(number)) for number in range(_TIED)],
        "spelled": [ids(*spelled(number)) for number in range(_SPELLED)],
        "untyped": [ids(*case, surrounded=True) for case in untyped()],
        "flagged": [ids(vocabulary, [*SURROUNDED], surrounded=True) for vocabulary in flagged()],
    }
    _OUTPUT.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
