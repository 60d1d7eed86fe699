"""The tokenizer of a directory, assembled from all of its files.

``tokenizer.json`` is only one of them. ``tokenizer_config.json`` has further tokens and their flags, names the special
tokens, and names the tokenizer's class, which can replace parts of ``tokenizer.json``. Older directories have the
tokens in ``special_tokens_map.json`` and ``added_tokens.json``. Fields and precedence are those of transformers 5.23.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken

from lang_core import LARGE_JSON_BOUNDS, CheckpointError, file_bytes, file_json, json_value
from tapeline.text._library import library_errors
from tapeline.text._limits import check_character_map, check_tokenizer_json, check_tokens, check_vocabulary
from tapeline.text._sentencepiece import (
    ignored_rules,
    merged_model,
    plain_tokenizer,
    scored_pieces,
    sentencepiece_file,
    set_arguments,
)
from tapeline.text._sentencepiece_model import SentencePieceModel, read_sentencepiece
from tapeline.text._tokenizer_classes import (
    CHARACTER_MAP,
    CLASSES,
    Arguments,
    TokenizerClass,
    chosen_class,
    set_begin_and_end,
)

TOKENIZER_FILE: Final = "tokenizer.json"
"""Name of a tokenizer's file in a checkpoint or bundle."""
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
"""Name of the file with a tokenizer's class, tokens and chat template."""
TOOL_TEMPLATE_FILE: Final = "additional_chat_templates/tool_use.jinja"
"""Name of the file with a further chat template, for messages with tools."""
DEFAULT_TEMPLATE_FILE: Final = "additional_chat_templates/default.jinja"
"""Name of a second file for the chat template of messages without tools."""
UNMATCHED: Final = "unmatched_special_tokens"
"""Field of tokenizer_config.json in bundles of GGUF files: names of tokens that are not matched in a text."""

_MODEL_CONFIG: Final = "config.json"
_TOKEN_MAP: Final = "special_tokens_map.json"
_ADDED_FILE: Final = "added_tokens.json"
_ADDED: Final = "added_tokens_decoder"
_EXTRA: Final = "extra_special_tokens"
_OLD_EXTRA: Final = "additional_special_tokens"
_NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SURROUNDS: Final = ("add_bos_token", "add_eos_token")
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
_COPY: Final = "copy it again from the model's source"
_MISTRAL: Final = ("mistral", "mistral3", "voxtral", "ministral", "pixtral")
_LARGE: Final = 100_000  # tokens; a smaller vocabulary is not one of Mistral's with a wrong pattern
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class AssembledTokenizer:
    """A tokenizer, and the settings of the files beside it.

    Attributes:
        path: file with the vocabulary.
        inner: tokenizer of the library, with every token added.
        tokens: text of the special tokens by name, such as ``bos_token``; chat templates read them.
        cleans: True if decoding removes spaces before punctuation.
        notes: settings of the files that are not supported.
    """

    path: Path
    inner: tokenizers.Tokenizer
    tokens: Mapping[str, str]
    cleans: bool = False
    notes: tuple[str, ...] = ()


def assemble(directory: Path) -> AssembledTokenizer | None:
    """Assembles the tokenizer of a checkpoint or a bundle; returns None if it lacks a file with a vocabulary.

    Raises:
        CheckpointError: a file is damaged.
    """
    files = _Files(directory)
    name, note = chosen_class(files.model_config, files.config, files.serialized)
    vocabulary = files.vocabulary(CLASSES.get(name))
    if vocabulary is not None:
        with library_errors(f"{vocabulary[0]} and {TOKENIZER_CONFIG} make no tokenizer", _COPY):
            return _assembled(files, vocabulary, name, note)
    model = files.sentencepiece(name)
    if model is None:
        return None
    with library_errors(f"{model.path} and {TOKENIZER_CONFIG} make no tokenizer", _COPY):
        return _assembled_of_pieces(files, model, name, note)


def special_tokens(directory: Path) -> dict[str, str]:
    """Returns the text of a directory's special tokens by name, also without a vocabulary.

    Raises:
        CheckpointError: a file is damaged.
    """
    assembled = assemble(directory)
    if assembled is not None:
        return dict(assembled.tokens)
    files = _Files(directory)
    arguments, _ = _arguments(files, None)
    named, _ = _named(arguments)
    return {name: str(token) for name, token in named.items()}


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object of a file; an empty one without the file.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        fields = file_json(path, LARGE_JSON_BOUNDS, nonfinite=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; {_COPY}") from error
    if not isinstance(fields, dict):
        raise CheckpointError(f"{path}: expected a JSON object; found {type(fields).__name__}: copy it again")
    return fields


@dataclass(frozen=True)
class _Files:
    """The files of a directory, read when they are first asked for."""

    directory: Path

    @cached_property
    def model_config(self) -> dict[str, Any]:
        return read_object(self.directory / _MODEL_CONFIG)

    @cached_property
    def config(self) -> dict[str, Any]:
        return read_object(self.directory / TOKENIZER_CONFIG)

    @cached_property
    def token_map(self) -> dict[str, Any]:
        return read_object(self.directory / _TOKEN_MAP)

    @cached_property
    def added(self) -> dict[str, Any]:
        return read_object(self.directory / _ADDED_FILE)

    @property
    def has_json(self) -> bool:
        return (self.directory / TOKENIZER_FILE).exists()

    @cached_property
    def serialized(self) -> str:
        """Text of tokenizer.json; empty if there is none."""
        path = self.directory / TOKENIZER_FILE
        if not path.exists():
            return ""
        try:
            return file_bytes(path, LARGE_JSON_BOUNDS.nbytes).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; {_COPY}") from error

    def vocabulary(self, tokenizer_class: TokenizerClass | None) -> tuple[Path, tokenizers.Tokenizer] | None:
        """Returns the file of the vocabulary and a tokenizer of it; None if the file does not exist."""
        if self.has_json:
            path = self.directory / TOKENIZER_FILE
            check_tokenizer_json(self.serialized, str(path))
            damage = f"{path} is damaged or newer than tokenizers {tokenizers.__version__} can read"
            with library_errors(damage, f"it is damaged: {_COPY}"):
                return path, tokenizers.Tokenizer.from_str(self.serialized)
        names = () if tokenizer_class is None else tokenizer_class.files
        paths = [self.directory / name for name in names]
        if not paths or not all(path.exists() for path in paths):
            return None
        with library_errors(f"{' and '.join(map(str, paths))} cannot be read", f"it is damaged: {_COPY}"):
            return paths[0], tokenizers.Tokenizer(_listed_model(paths))

    def sentencepiece(self, name: str) -> SentencePieceModel | None:
        """Returns the model of SentencePiece that a class reads; None if there is none."""
        path = sentencepiece_file(self.directory, name)
        if path is None:
            return None
        model = read_sentencepiece(path)
        check_tokens((piece.text for piece in model.pieces), str(path), "pieces")
        if model.character_map:
            check_character_map(model.character_map, str(path), "precompiled_charsmap")
        return model


def _listed_model(paths: list[Path]) -> Any:
    """Returns the model of a vocabulary without a tokenizer.json: vocab.txt, or vocab.json and merges.txt."""
    for path in paths:
        text = file_bytes(path, LARGE_JSON_BOUNDS.nbytes)
        if path.suffix == ".json":
            vocabulary = json_value(text, LARGE_JSON_BOUNDS)
            check_vocabulary(vocabulary if isinstance(vocabulary, dict) else {}, str(path), path.stem)
        else:
            check_tokens(text.decode("utf-8", "replace").split("\n"), str(path), path.stem)
    if len(paths) == 1:
        return tokenizers.models.WordPiece(tokenizers.models.WordPiece.read_file(str(paths[0])), unk_token="[UNK]")
    vocabulary, merges = tokenizers.models.BPE.read_file(str(paths[0]), str(paths[1]))
    return tokenizers.models.BPE(vocabulary, merges)


def _assembled(
    files: _Files, vocabulary: tuple[Path, tokenizers.Tokenizer], name: str, note: str
) -> AssembledTokenizer:
    """Assembles the tokenizer of a tokenizer.json, or of a listed vocabulary."""
    path, tokenizer = vocabulary
    tokenizer_class = CLASSES.get(name)
    stored = type(tokenizer.model).__name__
    if tokenizer_class is not None and stored != tokenizer_class.model:
        note = f"{path}: tokenizer class {name} needs a {tokenizer_class.model} model; found {stored}, used as it is"
        tokenizer_class = None
    arguments, added = _arguments(files, tokenizer)
    if tokenizer_class is not None:
        arguments = {**tokenizer_class.defaults, **arguments}
        tokenizer_class.prepare(arguments)
    if tokenizer.padding is not None:
        arguments.setdefault("pad_token", tokenizer.padding["pad_token"])
    if tokenizer_class is not None:
        unigram = tokenizer_class.model == "Unigram"
        listed = json_value(files.serialized, LARGE_JSON_BOUNDS)["model"]["vocab"] if unigram else ()
        state: dict[str, Any] = {}
        if tokenizer.normalizer is not None:
            state = json_value(tokenizer.normalizer.__getstate__(), LARGE_JSON_BOUNDS)
        for step in (state, *state.get("normalizers", ())):
            if step.get("type") == "Precompiled" and step.get("precompiled_charsmap"):
                arguments[CHARACTER_MAP] = base64.b64decode(step["precompiled_charsmap"])
                break
        tokenizer = _rebuilt(tokenizer, tokenizer_class, arguments, [(token, score) for token, score in listed])
    return _completed(files, path, tokenizer, tokenizer_class, arguments, added, (note,) if note else ())


def _assembled_of_pieces(files: _Files, model: SentencePieceModel, name: str, note: str) -> AssembledTokenizer:
    """Assembles the tokenizer of a file of SentencePiece."""
    tokenizer_class = CLASSES.get(name)
    arguments, added = _arguments(files, None)
    set_arguments(model, arguments, name)
    rules = ignored_rules(model, arguments, name)
    notes = tuple(text for text in (note, rules) if text)
    if tokenizer_class is None:
        return _completed(files, model.path, plain_tokenizer(model, added), None, arguments, added, notes)
    pieces = scored_pieces(model, arguments, name) if tokenizer_class.model == "Unigram" else []
    arguments = {**tokenizer_class.defaults, **arguments}
    tokenizer_class.prepare(arguments)
    inner = merged_model(model) if not pieces else tokenizers.Tokenizer(tokenizers.models.Unigram())
    tokenizer = _rebuilt(inner, tokenizer_class, arguments, pieces)
    return _completed(files, model.path, tokenizer, tokenizer_class, arguments, added, notes)


def _completed(
    files: _Files,
    path: Path,
    tokenizer: tokenizers.Tokenizer,
    tokenizer_class: TokenizerClass | None,
    arguments: Arguments,
    added: Mapping[int, AddedToken],
    notes: tuple[str, ...],
) -> AssembledTokenizer:
    """Adds the tokens that are matched whole, and the tokens around texts."""
    named, extra = _named(arguments)
    with_template = tokenizer.post_processor is not None and not any(flag in arguments for flag in _SURROUNDS)
    tokenizer.encode_special_tokens = bool(arguments.get("split_special_tokens", False))
    unmatched = {str(name) for name in files.config.get(UNMATCHED) or ()}
    matched = {name: token for name, token in named.items() if name not in unmatched}
    new = _new_tokens(tokenizer, added, matched, extra)
    check_tokens((token.content for token in new), str(files.directory / TOKENIZER_CONFIG), _ADDED)
    tokenizer.add_tokens(new)
    _correct_mistral(tokenizer, files)
    if not with_template:
        set_begin_and_end(tokenizer, arguments, named)
    if tokenizer_class is not None:
        tokenizer_class.name_tokens(tokenizer, [*named.values(), *extra])
        tokenizer_class.finish(tokenizer, arguments, named)
    tokens = {name: str(token) for name, token in named.items()}
    return AssembledTokenizer(path, tokenizer, tokens, _cleans(tokenizer, arguments), notes)


def _rebuilt(
    tokenizer: tokenizers.Tokenizer,
    tokenizer_class: TokenizerClass,
    arguments: Arguments,
    pieces: list[tuple[str, float]],
) -> tokenizers.Tokenizer:
    """Returns a tokenizer of the vocabulary as its class has it: only the post-processor is that of the file.

    Args:
        tokenizer: with the vocabulary of a BPE or WordPiece.
        tokenizer_class: of the tokenizer.
        arguments: of the class.
        pieces: vocabulary of a Unigram.
    """
    model: Any = tokenizer.model
    if tokenizer_class.model == "Unigram":
        model = tokenizers.models.Unigram(pieces, unk_id=tokenizer_class.unknown, byte_fallback=False)
    rebuilt = tokenizers.Tokenizer(model)
    tokenizer_class.build(rebuilt, arguments)
    if tokenizer.post_processor is not None:
        rebuilt.post_processor = tokenizer.post_processor
    return rebuilt


def _arguments(files: _Files, tokenizer: tokenizers.Tokenizer | None) -> tuple[Arguments, dict[int, AddedToken]]:
    """Returns the arguments of the tokenizer's class, and the tokens to add by id."""
    place = files.directory / TOKENIZER_CONFIG
    arguments: Arguments = {key: value for key, value in files.config.items() if key != _ADDED}
    if files.has_json:
        for flag in _SURROUNDS:
            arguments.pop(flag, None)
    if _OLD_EXTRA in arguments and not arguments.get(_EXTRA):
        arguments[_EXTRA] = arguments.pop(_OLD_EXTRA)
    specific: dict[str, Any] = {
        key: arguments.pop(key)
        for key in [*arguments]
        if key not in _NAMES and key.endswith("_token") and isinstance(arguments[key], str | AddedToken)
    }
    if isinstance(arguments.get(_EXTRA), dict):
        specific |= arguments.pop(_EXTRA)
    added: dict[int, AddedToken] = {}
    if _ADDED in files.config:
        added = _added_of_config(files.config[_ADDED], place)
    else:
        _read_map(files, arguments)
        if isinstance(arguments.get(_EXTRA), dict):
            specific |= arguments.pop(_EXTRA)
        added = _added_of_file(files, arguments)
        if tokenizer is not None and files.has_json:
            added |= tokenizer.get_added_tokens_decoder()
    arguments = {key: _value(value, place, key) for key, value in arguments.items()}
    specific = {key: _value(value, place, key) for key, value in specific.items()}
    by_text = {token.content: token for token in added.values()}
    for name in _NAMES:
        token = arguments.get(name)
        if token is not None:
            arguments[name] = by_text.get(str(token), token)
    arguments["model_specific"] = {**specific, **arguments.get("model_specific_special_tokens", {})}
    return arguments, added


def _value(value: Any, place: Path, key: str) -> Any:
    """Returns a value of the configuration, with tokens in place of the objects that stand for them."""
    if isinstance(value, list):
        return [_value(entry, place, key) for entry in value]
    if isinstance(value, dict):
        if value.get("__type") == "AddedToken" or (key in _NAMES and "content" in value):
            return _token(value, place, key)
        return {name: _value(entry, place, f"{key}.{name}") for name, entry in value.items()}
    return value


def _token(fields: object, place: Path, key: str, **forced: bool) -> AddedToken:
    """Returns the token of an object with ``content`` and flags.

    Raises:
        CheckpointError: it is none.
    """
    if isinstance(fields, Mapping):
        content = fields.get("content")
        flags = {name: fields[name] for name in _FLAGS if name in fields} | forced
        if isinstance(content, str) and all(isinstance(flag, bool) for flag in flags.values()):
            return AddedToken(content, **flags)
    raise CheckpointError(
        f"{place}: {key}: expected a token with 'content' and flags that are true or false; found {fields!r:.80}: "
        f"{_COPY}"
    )


def _added_of_config(entries: object, place: Path) -> dict[int, AddedToken]:
    if not isinstance(entries, Mapping) or not all(isinstance(key, str) and key.isdecimal() for key in entries):
        raise CheckpointError(
            f"{place}: {_ADDED}: expected an object with token ids as keys; found {entries!r:.80}: {_COPY}"
        )
    return {int(key): _token(entry, place, f"{_ADDED}.{key}") for key, entry in entries.items()}


def _read_map(files: _Files, arguments: Arguments) -> None:
    """Takes over special_tokens_map.json, which wins over tokenizer_config.json."""
    place = files.directory / _TOKEN_MAP
    for key, value in files.token_map.items():
        if key == _EXTRA and isinstance(value, list):
            known = [*(arguments.get(_EXTRA) or [])]
            new = [_map_token(entry, place, key) for entry in value]
            arguments[key] = known + [token for token in new if str(token) not in map(str, known)]
        elif key == _EXTRA and isinstance(value, dict):
            arguments[key] = {name: _map_token(entry, place, key) for name, entry in value.items()}
        elif isinstance(value, list):
            arguments[key] = [_map_token(entry, place, key) for entry in value]
        else:
            arguments[key] = _map_token(value, place, key)


def _map_token(value: Any, place: Path, key: str) -> Any:
    return _token(value, place, key, special=True) if isinstance(value, dict) else value


def _added_of_file(files: _Files, arguments: Arguments) -> dict[int, AddedToken]:
    """Returns the tokens of added_tokens.json; those are special that a file names by their text alone."""
    place = files.directory / _ADDED_FILE
    special = {str(arguments[name]) for name in _NAMES if arguments.get(name)}
    special |= {str(token) for token in arguments.get(_EXTRA) or []}
    added: dict[int, AddedToken] = {}
    for content, number in files.added.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise CheckpointError(f"{place}: {content!r:.80}: expected a token id; found {number!r:.40}: {_COPY}")
        named = content in special
        added[number] = AddedToken(content, rstrip=False, lstrip=False, normalized=not named, special=named)
    return added


def _named(arguments: Arguments) -> tuple[dict[str, AddedToken | str], list[AddedToken | str]]:
    """Returns the special tokens by name, the standard names first, and those without a name."""
    if _OLD_EXTRA in arguments and _EXTRA not in arguments:
        arguments[_EXTRA] = arguments.pop(_OLD_EXTRA)
    extra = arguments.get(_EXTRA)
    named = {name: arguments[name] for name in _NAMES if arguments.get(name) is not None}
    more = {
        key: value
        for key, value in arguments.items()
        if key.endswith("_token") and key not in _NAMES and isinstance(value, str | AddedToken)
    }
    if isinstance(extra, dict):
        more = {**extra, **more}
    named |= {**more, **arguments["model_specific"]}
    for name, token in named.items():
        if not isinstance(token, str | AddedToken):
            raise CheckpointError(f"{TOKENIZER_CONFIG}: {name}: expected a token; found {token!r:.80}: {_COPY}")
    listed = extra if isinstance(extra, list) else []
    for token in listed:
        if not isinstance(token, str | AddedToken):
            raise CheckpointError(f"{TOKENIZER_CONFIG}: {_EXTRA}: expected tokens; found {token!r:.80}: {_COPY}")
    return named, listed


def _new_tokens(
    tokenizer: tokenizers.Tokenizer,
    added: Mapping[int, AddedToken],
    named: Mapping[str, AddedToken | str],
    extra: list[AddedToken | str],
) -> list[AddedToken]:
    """Returns the tokens to add: those with an id in the order of their ids, then named ones that are not there yet."""
    listed: list[AddedToken | str] = [added[number] for number in sorted(added)]
    there = {token.content for token in tokenizer.get_added_tokens_decoder().values()} | {*map(str, listed)}
    names = {str(token) for token in named.values()}
    for token in (*named.values(), *extra):
        if str(token) not in there and token not in listed:  # one of two names can have flags, which count then
            listed.append(token)
    tokens = [AddedToken(token, special=True) if isinstance(token, str) else token for token in listed]
    for token in tokens:
        if not token.special and token.content in names:
            token.special = True
    return tokens


def _correct_mistral(tokenizer: tokenizers.Tokenizer, files: _Files) -> None:
    """Replaces the pattern of a Mistral tokenizer if the configuration marks it as wrong."""
    if files.config.get("fix_mistral_regex") is not True or tokenizer.get_vocab_size() <= _LARGE:
        return
    version, model_type = files.model_config.get("transformers_version"), files.model_config.get("model_type")
    if isinstance(version, str) and version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) >= 5:
        return
    if tokenizer.pre_tokenizer is None or (model_type is not None and model_type not in _MISTRAL):
        return
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_TEKKEN), behavior="isolated")
    pieces: Any = tokenizer.pre_tokenizer
    if isinstance(pieces, tokenizers.pre_tokenizers.Sequence):
        pieces[0] = split
        return
    if isinstance(pieces, tokenizers.pre_tokenizers.Metaspace):
        pieces = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, pieces])


def _cleans(tokenizer: tokenizers.Tokenizer, arguments: Arguments) -> bool:
    """Returns whether decoding removes spaces before punctuation; not for BPE, in which spaces are text."""
    if not arguments.get("clean_up_tokenization_spaces", False):
        return False
    forced = arguments.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", False)
    return bool(forced) or type(tokenizer.model).__name__ != "BPE"
