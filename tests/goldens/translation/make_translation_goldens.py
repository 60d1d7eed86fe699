"""Answers of tiny encoder-decoders to texts, by transformers' ``generate``: run by hand, outside Bazel.

    python -m tests.goldens.translation.make_translation_goldens

Each model has a tokenizer of its own; texts go through the tokenizer's class, with its languages.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

from tests.goldens.encoders.files import random_encoder_weights
from tests.goldens.translation.files import DATA

_WORDS: Final = "the a cat dog sat on mat big red house tree runs sees with and".split()
_TEXTS: Final = ("the cat sat on the mat", "a big red house!", "dog runs  with</s> tree zebra")
_FILES: Final = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
_CLEAR: Final = 1e-4
_SIZES: Final[dict[str, Any]] = {
    "activation_function": "relu",
    "d_model": 32,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 37,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 41,
    "encoder_layers": 1,
    "max_position_embeddings": 64,
}
_ENDS: Final = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}


def main() -> int:
    """Make the file."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    models = {"bart": _bart(), "led": _led(), "mbart": _mbart(), "nllb": _nllb(), "t5": _t5(), "t5gemma": _t5gemma()}
    head = {"script": "tests/goldens/translation/make_translation_goldens.py", "transformers": transformers.__version__}
    DATA.write_text(f"{json.dumps({**head, 'models': models}, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    for name, model in models.items():
        for answer in model["answers"]:
            print(name, answer["options"], answer["tokens"], repr(answer["answer"]))
    return 0


def _bart() -> dict[str, Any]:
    tokenizer = transformers.BartTokenizer(vocab=_letters(), merges=[])
    config = transformers.BartConfig(vocab_size=261, **_SIZES)
    rules = {
        **_ENDS,
        "bos_token_id": 0,
        "early_stopping": True,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
        "length_penalty": 2.0,
        "max_length": 18,
        "min_length": 6,
        "no_repeat_ngram_size": 2,
        "num_beams": 4,
    }
    calls = ({}, {"num_beams": 1}, {"num_beams": 2, "length_penalty": 0.1, "max_new_tokens": 25})
    return _model(transformers.BartForConditionalGeneration, config, tokenizer, rules, [(call, ()) for call in calls])


def _led() -> dict[str, Any]:
    tokenizer = transformers.LEDTokenizer(vocab=_letters(), merges=[])
    sizes = {name: value for name, value in _SIZES.items() if name != "max_position_embeddings"}
    positions = {"max_encoder_position_embeddings": 72, "max_decoder_position_embeddings": 40}
    config = transformers.LEDConfig(vocab_size=261, attention_window=8, **positions, **sizes)
    rules = {
        **_ENDS,
        "bos_token_id": 0,
        "length_penalty": 2.0,
        "max_length": 14,
        "no_repeat_ngram_size": 3,
        "num_beams": 3,
    }
    calls = ({}, {"num_beams": 1})
    return _model(transformers.LEDForConditionalGeneration, config, tokenizer, rules, [(call, ()) for call in calls])


def _letters() -> dict[str, int]:
    letters = {letter: place + 4 for place, letter in enumerate(sorted(ByteLevel.alphabet()))}
    return {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, **letters, "<mask>": 260}


def _mbart() -> dict[str, Any]:
    tokenizer = transformers.MBartTokenizer(vocab=_pieces("<s>", "<pad>", "</s>", "<unk>"))
    config = transformers.MBartConfig(vocab_size=len(tokenizer), scale_embedding=True, **_SIZES)
    rules = {**_ENDS, "forced_eos_token_id": 2, "max_length": 13, "num_beams": 5}
    calls = [({}, ("en_XX", "ro_RO")), ({"num_beams": 1, "max_new_tokens": 9}, ("fr_XX", "de_DE"))]
    return _model(transformers.MBartForConditionalGeneration, config, tokenizer, rules, calls)


def _nllb() -> dict[str, Any]:
    vocabulary = {piece: place for place, (piece, _) in enumerate(_pieces("<s>", "<pad>", "</s>", "<unk>"))}
    merges = [(word[:cut], word[cut]) for word in (f"▁{word}" for word in _WORDS) for cut in range(1, len(word))]
    tokenizer = transformers.NllbTokenizer(
        vocab=vocabulary, merges=[*dict.fromkeys(merges)], additional_special_tokens=["eng_Latn", "fra_Latn"]
    )
    config = transformers.M2M100Config(vocab_size=len(tokenizer) + 3, **_SIZES)
    calls = [
        ({"num_beams": 3, "max_new_tokens": 12, "early_stopping": "never"}, ("eng_Latn", "fra_Latn")),
        ({"num_beams": 1, "max_new_tokens": 9}, ("fra_Latn", "eng_Latn")),
    ]
    rules = {**_ENDS, "max_length": 20}
    return _model(transformers.M2M100ForConditionalGeneration, config, tokenizer, rules, calls)


def _t5() -> dict[str, Any]:
    tokenizer = transformers.T5Tokenizer(vocab=_pieces("<pad>", "</s>", "<unk>"), extra_ids=3)
    config = transformers.T5Config(
        vocab_size=len(tokenizer) + 5, d_ff=41, d_kv=8, d_model=32, num_heads=4, num_layers=2
    )
    rules = {"decoder_start_token_id": 0, "eos_token_id": 1, "max_length": 16, "pad_token_id": 0}
    calls = [({}, ()), ({"num_beams": 3, "repetition_penalty": 1.3, "max_new_tokens": 10}, ())]
    return _model(transformers.T5ForConditionalGeneration, config, tokenizer, rules, calls)


def _t5gemma() -> dict[str, Any]:
    tokenizer = transformers.T5Tokenizer(vocab=_pieces("<pad>", "</s>", "<unk>"), extra_ids=3)
    sizes = {"head_dim": 8, "hidden_size": 32, "intermediate_size": 41, "num_attention_heads": 4}
    kinds = {"sliding_window": 4, "max_position_embeddings": 64, "vocab_size": len(tokenizer)}
    part = {**sizes, **kinds, "num_hidden_layers": 2, "num_key_value_heads": 2, "query_pre_attn_scalar": 8}
    config = transformers.T5GemmaConfig(encoder=part, decoder={**part, "num_key_value_heads": 1}, vocab_size=83)
    rules = {"bos_token_id": 2, "eos_token_id": 1, "max_length": 16, "pad_token_id": 0}
    calls = [({}, ()), ({"num_beams": 3, "length_penalty": 0.5, "max_new_tokens": 10}, ())]
    return _model(transformers.T5GemmaForConditionalGeneration, config, tokenizer, rules, calls)


def _pieces(*first: str) -> list[tuple[str, float]]:
    """Returns special tokens, letters and beginnings of words, with scores."""
    pieces = ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    pieces += [f"▁{word[:cut]}" for word in _WORDS for cut in range(1, len(word) + 1)]
    return [*((token, 0.0) for token in first), *((p, -place / 8) for place, p in enumerate(dict.fromkeys(pieces)))]


def _model(family: Any, config: Any, tokenizer: Any, rules: dict[str, Any], calls: Any) -> dict[str, Any]:
    """Returns a model's files, and its answers to each text with the options and languages of each call."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        family(config).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        transformers.GenerationConfig(**rules).save_pretrained(directory)
        with safetensors.safe_open(directory / "model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        files = {file: (directory / file).read_text(encoding="utf-8") for file in _FILES}
        for seed in range(1, 40):
            weights = random_encoder_weights({key: tuple(shape) for key, shape in shapes.items()}, seed)
            safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
            model = family.from_pretrained(directory)
            answers = [_answer(model.eval(), tokenizer, text, *call) for text in _TEXTS for call in calls]
            varied = sum(len(set(answer["tokens"])) > 3 for answer in answers)
            if varied >= len(answers) // 3 and all(answer.pop("clear") for answer in answers):
                return {"files": files, "shapes": shapes, "seed": seed, "answers": answers}
    raise RuntimeError(f"{family.__name__}: no seed gives answers that vary")


def _answer(model: Any, tokenizer: Any, text: str, options: dict[str, Any], languages: Any) -> dict[str, Any]:
    given = dict(options)
    if languages:
        tokenizer.src_lang = languages[0]
        first = (
            "decoder_start_token_id" if isinstance(tokenizer, transformers.MBartTokenizer) else "forced_bos_token_id"
        )
        given[first] = tokenizer.convert_tokens_to_ids(languages[1])
    source = tokenizer(text, return_tensors="pt")
    source.pop("token_type_ids", None)
    made = model.generate(**source, **given, return_dict_in_generate=True, output_scores=True)
    tokens = made.sequences[0].tolist()
    return {
        "text": text,
        "options": options,
        "languages": list(languages),
        "source": source["input_ids"][0].tolist(),
        "tokens": tokens[1:],
        "answer": tokenizer.decode(tokens, skip_special_tokens=True),
        "clear": _is_clear(made),
    }


def _is_clear(made: Any) -> bool:
    """Returns whether rounding can hardly change the answer: the best two tokens of each row and step are apart."""
    best = np.concatenate([np.sort(scores.numpy(), -1)[:, -2:] for scores in made.scores])
    return bool((best[:, 1] - best[:, 0] > _CLEAR).all())


if __name__ == "__main__":
    sys.exit(main())
