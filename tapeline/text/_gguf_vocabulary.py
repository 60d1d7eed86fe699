"""The vocabulary in a GGUF file's metadata: tokens and their types."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tokenizers import AddedToken

from lang_core import CheckpointError
from tapeline.text._limits import check_tokens

PREFIX: Final = "tokenizer.ggml."

# Tokens of these names are special, whatever type an older converter gave them: they end an answer, ...
_ENDS: Final = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
        *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
        *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~["),
        "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek's own bars
    )
)
# ... or stand between the parts of a program. llama.cpp takes one name for each role, if no field names the token.
INFILLING: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        ("fim_pre_token_id", "prefix_token_id"): (
            *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
            "<｜fim▁begin｜>",  # noqa: RUF001
        ),
        ("fim_suf_token_id", "suffix_token_id"): (
            *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
            "<｜fim▁hole｜>",  # noqa: RUF001
        ),
        ("fim_mid_token_id", "middle_token_id"): (
            *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"),
            "<｜fim▁end｜>",  # noqa: RUF001
        ),
        ("fim_pad_token_id",): ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
        ("fim_rep_token_id",): ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
        ("fim_sep_token_id",): ("<|file_sep|>",),
    }
)
"""Names of tokens between the parts of a program, by the fields of a GGUF file that name the token of each role."""

# Parts of gpt-oss's messages.
_SHOWN: Final = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))
_NOT_STRIPPING: Final = ("<unk>", "<s>", "<|endoftext|>")  # of Phi-3, whose other special tokens do
_MASKING_PRE: Final = ("jina-v2-de", "jina-v2-es", "jina-v2-code")
_MASKING_ARCHITECTURES: Final = ("nomic-bert-moe", "jina-bert-v3")


class TokenType(enum.IntEnum):
    """``llama_token_type`` of llama.cpp."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The fields ``tokenizer.ggml.*`` of a file.

    Attributes:
        path: the file, for messages.
        fields: under their names without the prefix.
        tokens: by id.
        types: by id.
    """

    path: str
    fields: Mapping[str, Any]
    tokens: list[str]
    types: list[TokenType]

    @classmethod
    def read(cls, metadata: Mapping[str, Any], path: str) -> "Vocabulary":
        """Reads and checks tokens and types.

        Raises:
            CheckpointError: there are none, or they are of the wrong kind or number.
        """
        fields = {key[len(PREFIX) :]: value for key, value in metadata.items() if key.startswith(PREFIX)}
        tokens = fields.get("tokens")
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(
                f"{path}: {PREFIX}tokens: expected a list of strings; found {_short(tokens)}: convert the model again"
            )
        check_tokens(tokens, path, f"{PREFIX}tokens")
        made = cls(path, fields, tokens, [])
        numbers = made.listed("token_type", int) or [TokenType.NORMAL] * len(tokens)
        known = {kind.value for kind in TokenType}
        made.types.extend(TokenType(number) if number in known else TokenType.NORMAL for number in numbers)
        return made

    def listed(self, name: str, *kinds: type) -> list[Any] | None:
        """Returns a field with one value per token; None if the field is missing.

        Raises:
            CheckpointError: it is not such a list.
        """
        values = self.fields.get(name)
        if values is None:
            return None
        if (
            not isinstance(values, list)
            or len(values) != len(self.tokens)
            or not all(isinstance(x, kinds) for x in values)
        ):
            raise CheckpointError(
                f"{self.path}: {PREFIX}{name}: expected {len(self.tokens)} values, one per token; found "
                f"{_short(values)}: convert the model again"
            )
        return values

    def token(self, name: str, default: int | None = None) -> str | None:
        """Returns the token with its id in a field.

        Args:
            name: the field.
            default: id if the field is missing; None, or an id beyond the vocabulary, for none.

        Raises:
            CheckpointError: the field does not hold an id.
        """
        token_id = self.fields.get(name)
        if token_id is None:
            return None if default is None or default >= len(self.tokens) else self.tokens[default]
        if not isinstance(token_id, int) or not 0 <= token_id < len(self.tokens):
            raise CheckpointError(
                f"{self.path}: {PREFIX}{name}: expected an id below {len(self.tokens)}; found {_short(token_id)}: "
                "convert the model again"
            )
        return self.tokens[token_id]

    def flag(self, name: str, default: bool) -> bool:
        """Returns a field that is true or false.

        Raises:
            CheckpointError: it is neither.
        """
        value = self.fields.get(name, default)
        if not isinstance(value, bool):
            raise CheckpointError(
                f"{self.path}: {PREFIX}{name}: expected true or false; found {_short(value)}: convert the model again"
            )
        return value

    def merges(self) -> list[tuple[str, str]]:
        """Returns the pairs of tokens that are merged, first ones first; a pair that is listed twice counts once.

        Raises:
            CheckpointError: the field is missing, or does not hold pairs.
        """
        stored = self.fields.get("merges")
        if not isinstance(stored, list) or not all(isinstance(merge, str) for merge in stored):
            raise CheckpointError(
                f"{self.path}: {PREFIX}merges: expected a list of strings; found {stored!r:.80}: convert it again"
            )
        merges: dict[tuple[str, str], None] = {}  # a tokenizer of the library would take the last place of a pair
        for index, merge in enumerate(stored):
            left, space, right = merge.partition(" ")
            if not (left and space and right) or " " in right:
                raise CheckpointError(
                    f"{self.path}: {PREFIX}merges: entry {index} is {merge!r:.80}, expected two tokens and a space "
                    "between them: convert the model again"
                )
            merges.setdefault((left, right))
        return [*merges]

    def ids(self) -> dict[str, int]:
        """The id of each token; the first of those that are there twice."""
        ids: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            ids.setdefault(token, index)
        return ids

    def added(self, architecture: str, name: str) -> list[AddedToken]:
        """Returns the tokens that are matched whole: control tokens, which decoding drops, and user-defined ones.

        Files do not say which of them take white space beside them; it follows from the model.

        Args:
            architecture: the model's, as the file names it.
            name: the model's name; empty if the file has none.
        """
        left, right = self._stripping(architecture, name.lower())
        return [
            AddedToken(
                token,
                special=special,
                normalized=False,
                lstrip=token in left,
                rstrip=right and token not in _NOT_STRIPPING,
            )
            for token, special in self.whole().items()
        ]

    def whole(self) -> dict[str, bool]:
        """Returns the tokens that are matched whole, in the order of their ids, and whether decoding drops them.

        llama.cpp goes by the type of a token, and by its name if the converter has not given it such a type. A token
        that a field names, such as ``bos_token_id``, need not be among them.
        """
        kinds = {TokenType.CONTROL: True, TokenType.UNKNOWN: True, TokenType.USER_DEFINED: False}
        names = {**dict.fromkeys(_SHOWN, False), **dict.fromkeys((*_ENDS, *self._infilling()), True)}
        if "<|tool_response>" in self.tokens:  # of Gemma 4, in which </s> is text
            del names["</s>"]
        whole: dict[str, bool] = {}
        for token, kind in zip(self.tokens, self.types, strict=True):
            special = kinds.get(kind, names.get(token))
            if token and special is not None:
                whole.setdefault(token, special)
        return whole

    def _infilling(self) -> Iterator[str]:
        """Yields the token of each role in infilling that fields do not name."""
        there = {*self.tokens}
        for fields, names in INFILLING.items():
            if not any(field in self.fields for field in fields):
                yield from [name for name in names if name in there][:1]

    def _stripping(self, architecture: str, name: str) -> tuple[tuple[str, ...], bool]:
        """Returns the tokens that take white space before them, and whether tokens take white space behind them."""
        pre = self.fields.get("pre")
        if pre in _MASKING_PRE or architecture in _MASKING_ARCHITECTURES:
            return ("<mask>",), False
        if pre == "modern-bert" or "modern-bert" in name:
            return ("[MASK]",), False
        phi3 = architecture in ("phi3", "phimoe") and "<|assistant|>" in self.tokens  # whatever the file is named
        pieces = self.fields.get("model") == "llama"
        return (), pieces and (phi3 or "phi-3" in name or "phi3" in name)


def _short(value: Any) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else f"{value!r:.80}"
