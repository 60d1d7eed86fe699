"""The tokenizer of a GGUF file, as the files of a Hugging Face directory."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, processors

from lang_core import CheckpointError, near_names
from tapeline.text._assembly import UNMATCHED
from tapeline.text._gguf_bpe import MARKED, UnreadTokenizerError, byte_level_bpe
from tapeline.text._gguf_sentencepiece import listed_bpe, sentencepiece_bpe
from tapeline.text._gguf_unigram import unigram
from tapeline.text._gguf_vocabulary import PREFIX, Vocabulary
from tapeline.text._gguf_wordpiece import word_piece
from tapeline.text._library import library_errors
from tapeline.text._tokenizer_classes import PLAIN

_TEMPLATE: Final = "tokenizer.chat_template"
_FIRST: Final = "bos"
_LAST: Final = "eos"
_SEPARATOR: Final = "sep"
_SEPARATOR_ID: Final = "seperator_token_id"  # as the gguf package spells it
_UNIGRAM: Final = "t5"
_NO_MODEL: Final = ("none", "no_vocab")
_WORD_PIECE: Final = "bert"
_LISTED: Final = "gemma4"
_UNLISTED: Final = {"llama": {"bos_token": 1, "eos_token": 2}, _UNIGRAM: {"eos_token": 1}}  # ids if no field has them
_ALWAYS_BEGUN: Final = ("gemma4", "granite-embed-multi-311m")  # whatever add_bos_token says, as in llama.cpp
_SPECIAL: Final = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def write_gguf_tokenizer(metadata: Mapping[str, Any], path: str, directory: Path) -> tuple[str, ...]:
    """Writes tokenizer.json and tokenizer_config.json, the chat template with it; nothing without a tokenizer.

    Args:
        metadata: of the file.
        path: the file's, for messages.
        directory: output directory.

    Returns:
        Missing facts of the file, which may make the tokenizer differ from the model's.

    Raises:
        UnreadTokenizerError: the tokenizer is of a kind that is not read.
        CheckpointError: it is damaged.
    """
    made = gguf_tokenizer(metadata, path)
    if made is None:
        return ()
    tokenizer, config = made
    (directory / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
    if metadata.get(f"{PREFIX}model") == "gpt2" and f"{PREFIX}pre" not in metadata:
        return (f"{path}: {PREFIX}pre is missing, so texts are split as 'default' says: convert the model again",)
    return ()


def gguf_tokenizer(metadata: Mapping[str, Any], path: str) -> tuple[Tokenizer, dict[str, Any]] | None:
    """Returns the tokenizer in a file's metadata and its tokenizer_config.json; None if there is none.

    Raises:
        UnreadTokenizerError: it is of a kind that is not read.
        CheckpointError: it is damaged.
    """
    kind = metadata.get(f"{PREFIX}model")
    if kind is None or kind in _NO_MODEL:
        return None
    architecture = str(metadata.get("general.architecture", ""))
    kinds: dict[str, Callable[[Vocabulary], tuple[Tokenizer, bool]]] = {
        "gpt2": byte_level_bpe,
        "llama": lambda vocabulary: sentencepiece_bpe(vocabulary, ordered=architecture.startswith("gemma")),
        _LISTED: listed_bpe,
        _WORD_PIECE: word_piece,
        _UNIGRAM: unigram,
    }
    if not isinstance(kind, str) or kind not in kinds:
        hint = near_names(kind, kinds) if isinstance(kind, str) else ""
        raise UnreadTokenizerError(
            f"{path}: {PREFIX}model: expected one of {', '.join(kinds)}; found {kind!r:.80}{hint}"
        )
    with library_errors(f"{path}: {PREFIX}* make no tokenizer", "convert the model again"):
        vocabulary = Vocabulary.read(metadata, path)
        if kind == "gpt2" and vocabulary.fields.get("pre") in MARKED:
            kind = _LISTED
        name = str(metadata.get("general.name", ""))
        tokenizer, config = _tokenizer(vocabulary, kinds[kind], vocabulary.added(architecture, name))
    template = _chat_template(metadata, path)
    return tokenizer, config if template is None else {**config, "chat_template": template}


def _tokenizer(
    vocabulary: Vocabulary, model: Callable[[Vocabulary], tuple[Tokenizer, bool]], added: list[AddedToken]
) -> tuple[Tokenizer, dict[str, Any]]:
    """Returns the tokenizer with its added tokens, and tokenizer_config.json without a chat template."""
    tokenizer, begins = model(vocabulary)
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    config: dict[str, Any] = {"tokenizer_class": PLAIN}  # whatever the type of the model implies
    kind = vocabulary.fields.get("model")
    unlisted = _UNLISTED.get(str(kind), {})
    config |= {name: vocabulary.token(field, unlisted.get(name)) for name, field in _SPECIAL.items()}
    if config["bos_token"] is None:
        config["bos_token"] = vocabulary.token("cls_token_id")  # encoders have either
    matched = {token.content for token in added}
    plain = sorted(name for name in _SPECIAL if config[name] and config[name] not in matched)
    if plain:
        config[UNMATCHED] = plain
    begun = vocabulary.flag("add_bos_token", begins) or kind == _LISTED or vocabulary.fields.get("pre") in _ALWAYS_BEGUN
    config["add_bos_token"] = begun and config["bos_token"] is not None
    config["add_eos_token"] = vocabulary.flag("add_eos_token", kind == _UNIGRAM) and config["eos_token"] is not None
    if kind != _WORD_PIECE:  # which has [CLS] and [SEP] around every text, whatever the flags say
        _surround(tokenizer, config, vocabulary)
    return tokenizer, config


def _surround(tokenizer: Tokenizer, config: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Has the tokenizer put the first and the last token around texts, and one between two, if the file says so."""
    first = config["bos_token"] if config["add_bos_token"] else None
    last = config["eos_token"] if config["add_eos_token"] else None
    between = vocabulary.token(_SEPARATOR_ID) if vocabulary.flag("add_sep_token", False) else None
    known = ((_FIRST, first), (_LAST, last), (_SEPARATOR, between))
    around = {name: token for name, token in known if token is not None}
    if first or last:
        ids = vocabulary.ids()
        # Pieces have names of their own: a token such as "<1:" would be read as a token and a type.
        named: Any = [{"id": name, "ids": [ids[token]], "tokens": [token]} for name, token in around.items()]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=_pieces((_FIRST, "$A", _LAST), around),
            pair=_pieces((_FIRST, "$A", _LAST, _SEPARATOR, "$B", _LAST), around),
            special_tokens=named,
        )


def _pieces(wanted: tuple[str, ...], around: Mapping[str, str]) -> list[str]:
    """Returns the pieces of a template that there are."""
    return [name for name in wanted if name.startswith("$") or name in around]


def _chat_template(metadata: Mapping[str, Any], path: str) -> str | list[dict[str, str]] | None:
    """Returns chat templates as tokenizer_config.json has them: one, or a list of named ones."""
    names = metadata.get("tokenizer.chat_templates", [])
    named = {str(name): metadata.get(f"{_TEMPLATE}.{name}") for name in (names if isinstance(names, list) else [])}
    stored = {"default": metadata.get(_TEMPLATE), **named}
    templates = {name: text for name, text in stored.items() if text is not None}
    for name, text in templates.items():
        if not isinstance(text, str):
            raise CheckpointError(f"{path}: {_TEMPLATE} ({name}): expected text; found {text!r:.80}: convert it again")
    if list(templates) == ["default"]:
        return templates["default"]
    return [{"name": name, "template": text} for name, text in templates.items()] or None
