"""Tokens of models that fill in the middle of a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tapeline.text._gguf_vocabulary import INFILLING
from tapeline.text._tokenizer import Tokenizer

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **{fields[0]: names for fields, names in INFILLING.items()},
    "eot_token_id": ("<EOT>", "▁<EOT>"),
}
_STATED: Final = {
    "fim_pre_token_id": "prefix_token",
    "fim_suf_token_id": "suffix_token",
    "fim_mid_token_id": "middle_token",
    "eot_token_id": "eot_token",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillTokens:
    """Tokens around the parts of a text with a gap.

    Attributes:
        prefix: begins the text before the gap.
        suffix: begins the text after the gap.
        middle: begins the text in the gap.
        repository: begins the name of a repository; None if the tokenizer lacks the token.
        file: begins the name of a file; None if the tokenizer lacks the token.
        ends: tokens that end the text in the gap.
    """

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None
    ends: frozenset[int] = frozenset()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "InfillTokens | None":
        """Returns the tokens of a tokenizer, by the names that llama.cpp knows; None if it has not all that are needed.

        Args:
            tokenizer: the tokenizer.
        """
        prefix, suffix, middle, pad, repository, file, end = (
            _token(tokenizer, role)
            for role in (
                *("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id"),
                *("fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id", "eot_token_id"),
            )
        )
        if prefix is None or suffix is None or middle is None:
            return None
        return cls(
            prefix=prefix,
            suffix=suffix,
            middle=middle,
            repository=repository,
            file=file,
            ends=frozenset(one for one in (pad, repository, file, end) if one is not None),
        )


def _token(tokenizer: Tokenizer, role: str) -> int | None:
    """Returns the token of a role: the one that the tokenizer's files name, or one of a name that llama.cpp knows."""
    stated = tokenizer.tokens.get(_STATED.get(role, ""))
    names = (*([] if stated is None else [stated]), *_NAMES.get(role, ()))
    return next((token for name in names if (token := tokenizer.token_id(name)) is not None), None)
