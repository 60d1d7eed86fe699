"""Rules that end generation."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from generation._model_files import CONFIG_FILE, GENERATION_FILE, read_object
from lang_core import ConfigError, checked_choices


@checked_choices
@dataclass(frozen=True)
class StopRule:
    """Ends generation with an end-of-sequence token or after a number of tokens, whichever comes first.

    Attributes:
        eos_ids: ids that end a sequence; may be empty.
        max_new_tokens: largest number of generated tokens.
        ignore_eos: whether to go on after an end-of-sequence token.

    Raises:
        ConfigError: max_new_tokens is below 1.
    """

    eos_ids: frozenset[int]
    max_new_tokens: int
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens={self.max_new_tokens} is out of range: give an integer of at least 1")

    def reason(self, token_id: int, count: int) -> Literal["eos", "length"] | None:
        """Returns why generation ends after ``token_id``, the ``count``-th new token (from 1); None if it goes on."""
        if token_id in self.eos_ids and not self.ignore_eos:
            return "eos"
        return "length" if count >= self.max_new_tokens else None


def eos_ids(config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None) -> frozenset[int]:
    """Returns the ids that end a sequence; empty if neither config names one.

    As in transformers, ``generation_config`` comes first; then ``config``, and there a multimodal model's
    ``text_config`` last.

    Raises:
        ConfigError: ``eos_token_id`` is neither an id, a list of ids nor null.

    >>> sorted(eos_ids({"eos_token_id": 2}, {"eos_token_id": [128001, 128009]}))
    [128001, 128009]
    """
    text_config = config.get("text_config")
    places = [
        (GENERATION_FILE, generation_config),
        (CONFIG_FILE, config),
        (f"{CONFIG_FILE} (text_config)", text_config),
    ]
    for name, place in places:
        if isinstance(place, Mapping) and place.get("eos_token_id") is not None:
            return _as_ids(place["eos_token_id"], name)
    return frozenset()


def load_eos_ids(directory: Path) -> frozenset[int]:
    """Returns the ids that end a sequence, from a directory's config.json and generation_config.json.

    Raises:
        ConfigError: config.json is missing, or a file is not a JSON object, or as for `eos_ids`.
    """
    config = read_object(directory / CONFIG_FILE)
    generation = directory / GENERATION_FILE
    return eos_ids(config, read_object(generation) if generation.exists() else None)


def _as_ids(value: object, where: str) -> frozenset[int]:
    listed: list[object] = value if isinstance(value, list) else [value]
    ids = [one for one in listed if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
    if len(ids) < len(listed):
        raise ConfigError(f"eos_token_id in {where} is {value!r}: expected a token id, a list of token ids or null")
    return frozenset(ids)
