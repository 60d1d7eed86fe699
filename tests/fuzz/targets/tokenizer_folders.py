"""The files beside tokenizer.json, which say how transformers would change it, and the older files without it.

An input is a JSON object of files: the text of a file, or the JSON that it has. ``sample`` names a tokenizer.json.
"""

import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tapeline.text import ChatTemplate, NoTemplateError, find_tokenizer
from tapeline.text import _samples_testing as samples
from tests.fuzz._files import written
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target

_SAMPLES = {
    "byte_level": samples.byte_level,
    "byte_fallback": samples.byte_fallback,
    "metaspace": samples.metaspace,
    "word_piece": samples.word_piece,
}
_CLASSES = (
    *("LlamaTokenizerFast", "GemmaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer", "BertTokenizer", "T5Tokenizer"),
    *("XLMRobertaTokenizer", "RobertaTokenizer", "MPNetTokenizer", "WhisperTokenizer", "CodeLlamaTokenizer"),
    *("CohereTokenizer", "GPTNeoXTokenizer", "TokenizersBackend", "PreTrainedTokenizerFast", "MBartTokenizer"),
    *("llama", "gemma", "gpt2", "qwen2", "bert", "t5", "xlm-roberta", "mistral", "whisper", "pixtral"),
)
_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json", "chat_template.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "sample"),
)
_TOKEN = {
    "__type": "AddedToken",
    "content": "<x>",
    "lstrip": True,
    "rstrip": False,
    "normalized": True,
    "special": True,
}
_KEYS = (
    *("tokenizer_class", "model_type", "bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token"),
    *("sep_token", "add_bos_token", "add_eos_token", "added_tokens_decoder", "extra_special_tokens", "chat_template"),
    *("additional_special_tokens", "add_prefix_space", "legacy", "split_special_tokens", "do_lower_case", "language"),
    *(
        "clean_up_tokenization_spaces",
        "extra_ids",
        "strip_accents",
        "vision_config",
        "300",
        "5",
        "image_token",
        *_FILES,
    ),
)
_VALUES = (
    *(*_CLASSES, *_SAMPLES, *_FILES, "<s>", "</s>", "<tool>", "[UNK]", _TOKEN, {"300": _TOKEN}, ["<y>", _TOKEN], 100),
    *({"default": "{{ messages }}"}, [{"name": "default", "template": "{{ bos_token }}"}], "{{ messages[0].content }}"),
    *({"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "a b\n", "[UNK]\n[CLS]\n[SEP]\na\n##b\n", {"<x>": 400}),
)
_TEXTS = ("the tape <s> 12", "é🙂")


@functools.cache
def _sample(name: str) -> bytes:
    return _SAMPLES[name]().to_str().encode()


def _seeds() -> list[bytes]:
    named = {"bos_token": "<s>", "eos_token": {**_TOKEN, "content": "</s>"}, "add_bos_token": True}
    samples_of = {
        "GemmaTokenizer": "byte_fallback",
        "LlamaTokenizerFast": "byte_fallback",
        "T5Tokenizer": "metaspace",
        "XLMRobertaTokenizer": "metaspace",
        "BertTokenizer": "word_piece",
    }
    folders: list[Mapping[str, Any]] = [
        {
            "sample": samples_of.get(name, "byte_level"),
            "tokenizer_config.json": {**named, "tokenizer_class": name, "added_tokens_decoder": {"300": _TOKEN}},
            "special_tokens_map.json": {"pad_token": "</s>"},
        }
        for name in _CLASSES
        if name[0].isupper()
    ]
    folders += [{"sample": "byte_level", "config.json": {"model_type": name}} for name in _CLASSES if name[0].islower()]
    config = {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}
    folders.append({**config, "vocab.json": {"a": 0, "b": 1, "ab": 2}, "merges.txt": "#version: 0.2\na b\n"})
    words = {"tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": False}}
    folders.append({**words, "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ntape\n##s\n"})
    folders.append(
        {"sample": "byte_fallback", "added_tokens.json": {"<y>": 400}, "chat_template.jinja": "{{ eos_token }}"}
    )
    return [json.dumps(folder).encode() for folder in folders]


def _mutate(data: bytes, draw: Random) -> bytes:
    return mutate_json(data, draw, _VALUES, _KEYS)


def _run(data: bytes) -> bool:
    try:
        folder = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(folder, dict):
        return False
    directory = Path.cwd() / "tokenizer"
    shutil.rmtree(directory, ignore_errors=True)
    sample = folder.get("sample")
    if isinstance(sample, str) and sample in _SAMPLES:
        written("tokenizer/tokenizer.json", _sample(sample))
    for name in folder.keys() & {*_FILES} - {"sample"}:
        text = folder[name] if isinstance(folder[name], str) else json.dumps(folder[name])
        written(f"tokenizer/{name}", text.encode("utf-8", "surrogatepass"))
    return _use(directory)


def _use(directory: Path) -> bool:
    tokenizer = find_tokenizer(directory)
    if tokenizer is None:
        return False
    for text in _TEXTS:
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        whole = "".join([*[stream.push(token_id) for token_id in ids], stream.finish()])
        decoded = tokenizer.decode(ids)
        if whole != decoded:
            raise AssertionError(f"streamed {whole!r}, decoded {decoded!r}")
    if not any((directory / name).exists() for name in ("chat_template.jinja", "tokenizer_config.json")):
        return True
    try:
        ChatTemplate.find(directory).render([{"role": "user", "content": "Hi"}])
    except NoTemplateError:
        return True
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
