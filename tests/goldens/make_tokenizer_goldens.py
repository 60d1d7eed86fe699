"""Answers of transformers' ``AutoTokenizer`` to drawn directories: data/drawn_tokenizers.json.

Also the classes that it has for types of models, registered and if no file names a class: data/tokenizer_classes.json.

Run outside of Bazel, with transformers (5.23) and tokenizers installed:

    PYTHONPATH=. python tests/goldens/make_tokenizer_goldens.py

With two numbers it prints the answers to so many directories from the first seed on, a line of JSON each; with
``types`` behind them those of directories of any type of models that the second file has:

    PYTHONPATH=. python tests/goldens/make_tokenizer_goldens.py 1000 500 types
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import transformers
from transformers import AutoTokenizer
from transformers.models.auto import tokenization_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.goldens.drawn_tokenizers import MESSAGES, DrawnDirectory, draw_directory, draw_of_any_type

_OUTPUT: Final = Path(__file__).parent / "data" / "drawn_tokenizers.json"
_CLASSES: Final = Path(__file__).parent / "data" / "tokenizer_classes.json"
_COUNT: Final = 80


def answer(directory: DrawnDirectory) -> dict[str, Any]:
    """Returns what transformers makes of a directory; ``error`` if it refuses the directory."""
    with tempfile.TemporaryDirectory() as folder:
        directory.write(Path(folder))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            return {"seed": directory.seed, "class": type(tokenizer).__name__, **_answers(tokenizer, directory)}
        except Exception as error:  # noqa: BLE001 - whatever transformers raises, it refuses
            return {"seed": directory.seed, "error": f"{type(error).__name__}: {error}"[:200]}


def _answers(tokenizer: Any, directory: DrawnDirectory) -> dict[str, Any]:
    pair = tokenizer(directory.texts[0], directory.texts[1], return_token_type_ids=True)
    ids = [tokenizer(text).input_ids for text in directory.texts]
    answers: dict[str, Any] = {
        "ids": ids,
        "plain_ids": [tokenizer(text, add_special_tokens=False).input_ids for text in directory.texts],
        "pair": [pair["input_ids"], pair["token_type_ids"]],
        "decoded": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
        "decoded_whole": [tokenizer.decode(one, skip_special_tokens=False) for one in ids],
        "tokens": tokenizer.special_tokens_map,
        "stop": tokenizer.eos_token_id,
    }
    if tokenizer.chat_template:
        options: dict[str, Any] = {"add_generation_prompt": True}
        answers["chat"] = tokenizer.apply_chat_template(MESSAGES, tokenize=False, **options)
        encoded = tokenizer.apply_chat_template(MESSAGES, tokenize=True, **options)
        answers["chat_ids"] = encoded if isinstance(encoded, list) else encoded["input_ids"]
    return answers


def classes() -> dict[str, Any]:
    """Returns the classes of tokenizers of all types of models, by their names without ``Fast``."""
    registered = {
        model_type: name.removesuffix("Fast")
        for model_type, name in sorted(tokenization_auto.TOKENIZER_MAPPING_NAMES.items())
        if name is not None
    }
    unnamed: dict[str, str] = {}
    for model_type in registered:
        mapped = None
        if model_type in CONFIG_MAPPING:
            mapped = tokenization_auto.TOKENIZER_MAPPING.get(CONFIG_MAPPING[model_type], None)
        unnamed[model_type] = "TokenizersBackend" if mapped is None else mapped.__name__.removesuffix("Fast")
    wrong = sorted(tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS)
    return {"registered": registered, "unnamed": unnamed, "wrong": wrong}


def main() -> None:
    """Writes the file, or prints answers."""
    if len(sys.argv) > 1:
        first, count = map(int, sys.argv[1:3])
        registered = json.loads(_CLASSES.read_text())["registered"] if "types" in sys.argv[3:] else None
        for seed in range(first, first + count):
            directory = draw_directory(seed) if registered is None else draw_of_any_type(seed, registered)
            with contextlib.redirect_stdout(sys.stderr):  # some classes print
                answers = answer(directory)
            print(json.dumps(answers, ensure_ascii=False), flush=True)
        return
    _CLASSES.write_text(json.dumps(classes(), indent=1) + "\n", encoding="utf-8")
    golden = {
        "made_by": "tests/goldens/make_tokenizer_goldens.py",
        "transformers": transformers.__version__,
        "answers": [answer(draw_directory(seed)) for seed in range(_COUNT)],
    }
    _OUTPUT.write_text(
        json.dumps(golden, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
