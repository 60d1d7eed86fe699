"""Settings with which a model reads whole texts: the longest, lower case, and the side that is cut off."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lang_core import ConfigError, checked_choices
from transformer_core import CONFIG_FILE, ConfigFields, config_fields, read_transformer_settings

_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_TOKENIZER: Final = "tokenizer.json"
_AGAIN: Final = "fetch the file again"
_UNLIMITED: Final = 10**9  # transformers writes 10**30 if there is no limit
_PROCESSOR: Final = ("processor_kwargs", "tokenizer_args")  # new files, and old ones
_SIDES: Final = ("right", "left")
_GENERAL: Final = ("PreTrainedTokenizerFast", "TokenizersBackend")


@checked_choices
@dataclass(frozen=True, slots=True)
class TextSettings:
    """Settings of texts, in the files beside a model or of a bundle.

    Attributes:
        max_tokens: the most tokens of a text; None if the files do not name a limit.
        lower_case: whether texts are lowercased first.
        from_left: whether the beginning of a long text is cut off.
        token_types: whether the tokenizer tells the second text of a pair from the first.
    """

    max_tokens: int | None = None
    lower_case: bool = False
    from_left: bool = False
    token_types: bool = True

    @classmethod
    def read(cls, directory: Path) -> "TextSettings":
        """Reads the settings as sentence-transformers does.

        The limit is ``max_seq_length`` of sentence_bert_config.json, or else the smaller of ``model_max_length`` of
        tokenizer_config.json and ``max_position_embeddings`` of config.json.

        Raises:
            ConfigError: a file is damaged, or has a setting that is not supported.
        """
        ours = read_transformer_settings(directory)
        tokenizer = _fields(directory / _TOKENIZER_CONFIG)
        processor = next((ours.object(name) for name in _PROCESSOR if ours.has(name)), ConfigFields({}, ours.where))
        limit = _limit(processor, "model_max_length") or _limit(ours, "max_seq_length")
        if limit is None and "model_max_length" not in processor.values:
            known = _limit(tokenizer, "model_max_length"), _limit(_config(directory), "max_position_embeddings")
            limit = min((one for one in known if one is not None), default=None)
        limit = _processing_limit(ours, limit)
        from_left = _side(directory, processor, tokenizer) == "left"
        return cls(limit, ours.boolean("do_lower_case", False), from_left, _has_types(tokenizer))


def _fields(path: Path) -> ConfigFields:
    return config_fields(str(path), _AGAIN) if path.exists() else ConfigFields({}, str(path))


def _config(directory: Path) -> ConfigFields:
    return _fields(directory / CONFIG_FILE)


def _limit(fields: ConfigFields, name: str) -> int | None:
    """Returns a number of tokens; None if there is none, or one beyond every text."""
    value = fields.values.get(name)
    if value is None or value == -1:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1 or value != value // 1:
        fields.refuse(name, "a whole number above 0")
    return None if value > _UNLIMITED else int(value)


def _processing_limit(ours: ConfigFields, limit: int | None) -> int | None:
    """Returns the limit of ``processing_kwargs``, or else the one that is known."""
    if not ours.has("processing_kwargs"):
        return limit
    groups = ours.object("processing_kwargs")
    for name, group in groups.values.items():
        if group and name != "text":
            groups.refuse(name, "no such settings")
    if not groups.has("text"):
        return limit
    text = groups.object("text")
    for name in text.values:
        if name not in ("max_length", "truncation", "padding"):
            text.refuse(name, "no such setting")
    if text.values.get("truncation") not in (None, True, "longest_first"):
        text.refuse("truncation", "true or longest_first")
    return _limit(text, "max_length") or limit


def _has_types(tokenizer: ConfigFields) -> bool:
    """Returns whether transformers passes token types on; its general class does so only if the file says it."""
    if tokenizer.has("model_input_names"):
        names = tokenizer.values["model_input_names"]
        if not isinstance(names, list):
            tokenizer.refuse("model_input_names", "a list of names")
        return "token_type_ids" in names
    return tokenizer.values.get("tokenizer_class") not in _GENERAL


def _side(directory: Path, processor: ConfigFields, tokenizer: ConfigFields) -> str:
    """Returns the side of a long text that is cut off."""
    for fields in (processor, tokenizer):
        if fields.has("truncation_side"):
            return fields.choice("truncation_side", _SIDES)
    path = directory / _TOKENIZER
    stored: Any = _fields(path).values.get("truncation")
    if stored is None:
        return _SIDES[0]
    side = stored.get("direction", "Right") if isinstance(stored, dict) else None
    if not isinstance(side, str) or side.lower() not in _SIDES:
        raise ConfigError(f"{path}: field 'truncation': expected a direction, Left or Right; found {side!r}: {_AGAIN}")
    return side.lower()
