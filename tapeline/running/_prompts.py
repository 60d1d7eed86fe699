"""Prompts of sentence-transformers: texts that a model was trained to see before others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import ConfigError, InputError, near_names
from transformer_core import config_fields

_FILE: Final = "config_sentence_transformers.json"
SIMILARITIES: Final = ("cosine", "dot", "euclidean", "manhattan")
"""Functions that compare vectors; the last two are distances, negated."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of a model.

    Attributes:
        named: prompts by name.
        default: name of the prompt that counts if none is named; None without a prompt.
        similarity: name of the function that compares the model's vectors.
    """

    named: Mapping[str, str]
    default: str | None = None
    similarity: str = SIMILARITIES[0]

    @classmethod
    def read(cls, directory: Path, similarities: tuple[str, ...] = SIMILARITIES) -> "Prompts":
        """Reads config_sentence_transformers.json of a bundle; without that file, prompts are empty.

        Args:
            directory: the bundle.
            similarities: functions that compare the model's vectors; the first is the default.

        Raises:
            ConfigError: the file is damaged, or its default is none of its prompts.
        """
        path = directory / _FILE
        if not path.exists():
            return cls({}, similarity=similarities[0])
        checked = config_fields(str(path), "fetch it again")
        similarity, fields = checked.choice("similarity_fn_name", similarities, similarities[0]), checked.values
        named, default = fields.get("prompts") or {}, fields.get("default_prompt_name")
        if isinstance(named, dict):
            named = {name: "" if text is None else text for name, text in named.items()}
        if not isinstance(named, dict) or any(not isinstance(text, str) for text in named.values()):
            raise ConfigError(f"{path}: field 'prompts': expected texts by name; found {named!r:.80}")
        if default is not None and default not in named:
            raise ConfigError(
                f"{path}: field 'default_prompt_name': {default!r} not found; available: {', '.join(named) or 'none'}"
            )
        return cls(named, default, similarity)

    def text(self, name: str | None = None) -> str:
        """Returns the prompt of a name, or the default one; empty if there is none.

        Raises:
            InputError: the prompt does not exist.
        """
        chosen = self.default if name is None else name
        if chosen is None:
            return ""
        if chosen not in self.named:
            available = ", ".join(self.named) or "none"
            raise InputError(
                f"prompt_name={chosen!r} not found; available: {available}{near_names(chosen, self.named)}"
            )
        return self.named[chosen]
