"""A directory's tokenizer: text to ids and back, by the `tokenizers` library."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import tokenizers

from lang_core import CheckpointError, ConfigError, InputError, checked_choices, load_plugins
from tapeline.text._assembly import (
    DEFAULT_TEMPLATE_FILE,
    TOKENIZER_CONFIG,
    TOKENIZER_FILE,
    TOOL_TEMPLATE_FILE,
    assemble,
    read_object,
    special_tokens,
)
from tapeline.text._ctc import has_characters
from tapeline.text._gguf_vocabulary import INFILLING
from tapeline.text._ids import check_ids
from tapeline.text._least_tokens import least_tokens
from tapeline.text._library import encoding_of, ids_of, library_errors, literal_tokenizer
from tapeline.text._marian import FILES as MARIAN_FILES
from tapeline.text._marian import TARGET_VOCABULARY, is_marian, read_marian
from tapeline.text._spaces import without_spaces
from tapeline.text._stream import TextStream, dropped_tokens
from tapeline.text._token_bytes import token_bytes

_COPY = "it is damaged: copy it again from the model's source"

# Tokenizers of other formats, which are not read.
_FOREIGN = ("tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

Reader = Callable[[Path], tokenizers.Tokenizer]
"""Makes a tokenizer of a file; raises ValueError or OSError where it is damaged."""

_READERS: Final[dict[str, Reader]] = {}
_FILES: Final = (
    TOKENIZER_FILE,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    TOOL_TEMPLATE_FILE,
    DEFAULT_TEMPLATE_FILE,
    *_FOREIGN,
    "merges.txt",
    *MARIAN_FILES,
    TARGET_VOCABULARY,
)


def tokenizer_files() -> tuple[str, ...]:
    """Returns the names of every file that belongs to a tokenizer: export copies those that are there."""
    load_plugins()
    return (*_FILES, *_READERS)


def register_tokenizer(file: str, read: Reader) -> None:
    """Registers a format of tokenizers, by its file's name; other packages may register further ones.

    A tokenizer.json wins if a directory has both.

    Args:
        file: name of the file.
        read: function that makes a tokenizer of it.

    Raises:
        ConfigError: the name is taken.
    """
    if file == TOKENIZER_FILE or file in _READERS:
        raise ConfigError(f"tokenizer file {file!r} is registered already: a name stands for one format")
    _READERS[file] = read


class Tokenizer:
    """Tokenizer of a directory: text to ids and back.

    Attributes:
        path: the tokenizer.json, or the file with the vocabulary if there is none.
        vocabulary_size: one more than the highest id.
        tokens: text of the special tokens by name, such as ``bos_token``.
        notes: settings of the directory's files that are not supported.
    """

    @checked_choices
    def __init__(
        self,
        path: Path,
        inner: tokenizers.Tokenizer,
        tokens: Mapping[str, str] | None = None,
        *,
        cleans: bool = False,
        notes: Sequence[str] = (),
        reads: Callable[[str, bool], list[int]] | None = None,
    ) -> None:
        """Wraps the result of `load`. Padding and truncation that the file asks for are off, as in transformers.

        Args:
            path: file with the vocabulary.
            inner: tokenizer of the library.
            tokens: text of the special tokens by name.
            cleans: True removes spaces before punctuation from decoded text.
            notes: settings of the directory's files that are not supported.
            reads: returns the ids of a text, with special tokens if its second argument is True; by default ``inner``.
        """
        inner.no_padding()
        inner.no_truncation()
        self.path = path
        self.tokens: Final = dict(tokens or {})
        self.notes: Final = tuple(notes)
        self._cleans: Final = cleans
        self._inner = inner
        self._reads: Final = reads
        self._added = frozenset(inner.get_added_tokens_decoder())
        self._special = frozenset(dropped_tokens(inner))
        self._bytes = token_bytes(inner)
        begin = self.tokens.get("bos_token", "")
        number = inner.token_to_id(begin) if begin else None
        self._unmatched_begin = ("", 0) if number is None or number in self._added else (begin, number)
        self.vocabulary_size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """Assembles the tokenizer of a checkpoint or a bundle from all of its files.

        Raises:
            CheckpointError: a vocabulary in a known format is missing, or a file is damaged.
        """
        made = assemble(directory)
        if made is None and is_marian(directory):
            inner, reads, tokens = read_marian(directory, read_object(directory / TOKENIZER_CONFIG))
            return cls(directory / MARIAN_FILES[0], inner, tokens, reads=reads)
        if made is None:
            return cls._registered(directory)
        return cls(made.path, made.inner, made.tokens, cleans=made.cleans, notes=made.notes)

    @classmethod
    def _registered(cls, directory: Path) -> "Tokenizer":
        """Reads the tokenizer with the reader that is registered for one of the directory's files."""
        load_plugins()
        name = next((name for name in _READERS if (directory / name).exists()), None)
        if name is None:
            raise CheckpointError(_missing(directory))
        path = directory / name
        try:
            return cls(path, _READERS[name](path), special_tokens(directory))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; {_COPY}") from error

    @checked_choices
    def encode(self, text: str, model_size: int | None = None, *, special_tokens: bool = True) -> list[int]:
        """Returns the ids of a text.

        Args:
            text: the prompt.
            model_size: the model's vocabulary V; if given, every id must be below it.
            special_tokens: whether those are added that tokenizer.json wants around a text (its post-processor).

        Raises:
            InputError: the text is not valid Unicode, has zero tokens, or has an id that the model lacks.
            CheckpointError: tokenizer.json is damaged, so that the library fails.
        """
        _check_unicode(text)
        ids = self._encoded(text, special_tokens)
        if not ids:
            raise InputError(f"prompt={text!r} gives no token with {self.path}: give a longer text")
        if model_size is not None:
            check_ids(ids, model_size, f"`prompt`, encoded with {self.path} ({self.vocabulary_size} entries),")
        return ids

    def encode_literal(self, text: str, model_size: int) -> list[int]:
        """Returns the ids of a text in which the names of special tokens are text; none for an empty text.

        Args:
            text: text of a user, such as a program with a gap.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: the text is not valid Unicode, or has an id that the model lacks.
            CheckpointError: tokenizer.json is damaged, so that the library fails.
        """
        self._check_reader("names of tokens as text")
        _check_unicode(text)
        with library_errors(f"{self.path} cannot encode a text", _COPY):
            ids = ids_of(self._literal, text, special_tokens=False)
        if ids:
            check_ids(ids, model_size, f"a text, encoded with {self.path} ({self.vocabulary_size} entries),")
        return ids

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        return literal_tokenizer(self._inner, {name for names in INFILLING.values() for name in names})

    def begin_ids(self) -> list[int]:
        """Returns the id of ``bos_token`` if the tokenizer puts it before a text."""
        first = next(iter(self._encoded("", True)), None)
        return [first] if first is not None and first == self.token_id(self.tokens.get("bos_token", "")) else []

    def least_tokens(self, text: str) -> int:
        """Returns a number of tokens that a text has at least, without encoding it; 0 if nothing is known."""
        return 0 if self._least is None else self._least(text)

    @cached_property
    def _least(self) -> Callable[[str], int] | None:
        return least_tokens(self._inner, len(self._unmatched_begin[0]))

    def encode_with_starts(self, text: str, model_size: int) -> tuple[list[int], list[int]]:
        """Returns the ids of a text that has its special tokens, and the character at which each token begins.

        Args:
            text: a conversation in a chat template.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: as for ``encode``.
            CheckpointError: as for ``encode``.
        """
        self._check_reader("conversations")
        ids = self.encode(text, model_size, special_tokens=False)
        with library_errors(f"{self.path} cannot encode a text", _COPY):
            first, start = self._begun(text)
            offsets = encoding_of(self._inner, text[start:], special_tokens=False).offsets
        return ids, [*(0 for _ in first), *(start + begin for begin, _ in offsets)]

    def encode_pair(self, first: str, second: str, model_size: int) -> tuple[list[int], list[int]]:
        """Returns the ids of a pair of texts, and their types: 0 of the first text, 1 of the second if they differ.

        Args:
            first: a text.
            second: another one.
            model_size: the model's vocabulary V; every id must be below it.

        Raises:
            InputError: as for ``encode``.
            CheckpointError: as for ``encode``.
        """
        self._check_reader("pairs of texts")
        for text in (first, second):
            _check_unicode(text)
        with library_errors(f"{self.path} cannot encode a pair of texts", _COPY):
            pair = encoding_of(self._inner, first, second)
        if not pair.ids:
            raise InputError(f"a pair of texts gives no token with {self.path}: give longer texts")
        check_ids(pair.ids, model_size, f"a pair of texts, encoded with {self.path} ({self.vocabulary_size} entries),")
        return list(pair.ids), list(pair.type_ids)

    @checked_choices
    def decode(self, ids: Sequence[int], *, special_tokens: bool = False) -> str:
        """Returns the text of ids. An id outside the vocabulary has an empty text.

        Args:
            ids: token ids.
            special_tokens: True writes special tokens as well.
        """
        with library_errors(f"{self.path} cannot decode token ids", _COPY):
            text = self._inner.decode(list(ids), skip_special_tokens=not special_tokens)
        return without_spaces(text) if self._cleans else text

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes of a token, which need not be whole characters; those of a special one spell its name."""
        return self._bytes(token_id)

    def serialized(self) -> str:
        """Returns the tokenizer as the text of a tokenizer.json."""
        return self._inner.to_str()

    def token_id(self, token: str) -> int | None:
        """Returns the id of a token; None if the vocabulary lacks the token."""
        return self._inner.token_to_id(token)

    def special_id(self, token: str) -> int | None:
        """Returns the id of a special token; None if the text is none."""
        token_id = self._inner.token_to_id(token)
        return token_id if token_id in self._special else None

    def special_tokens(self) -> frozenset[str]:
        """Returns the texts of all special tokens, which decoding drops."""
        return frozenset(token for index in self._special if (token := self._inner.id_to_token(index)) is not None)

    def eos_id(self) -> int | None:
        """Returns the id of the token named ``eos_token``; None if the files do not name one."""
        token = self.tokens.get("eos_token")
        return None if token is None else self._inner.token_to_id(token)

    def added_id(self, token: str) -> int | None:
        """Returns the id of a token that is matched whole, special or not; None if the text is none."""
        token_id = self._inner.token_to_id(token)
        return token_id if token_id in self._added else None

    def added_text(self, token_id: int) -> str | None:
        """Returns the text of a token that is matched whole, special or not; None if the id is another token's."""
        return self._inner.id_to_token(token_id) if token_id in self._added else None

    def text_ids(self) -> frozenset[int]:
        """Returns the ids of tokens that are matched whole and are text."""
        return self._added - self._special

    def first_special(self, text: str) -> int | None:
        """Returns the id of the special token that a text begins with; None if it begins with none."""
        first = next(iter(self._encoded(text, False)), None)
        return first if first in self._special else None

    def stream(self, keep: Collection[str] = ()) -> TextStream:
        """Returns a new stream that turns ids into text one by one.

        Args:
            keep: special tokens that the text shows; others are left out.
        """
        return TextStream(self._inner, str(self.path), keep, cleans=self._cleans)

    def _check_reader(self, texts: str) -> None:
        """Refuses what a Marian's tokenizer cannot do.

        Raises:
            InputError: texts are read by another tokenizer than answers.
        """
        if self._reads is not None:
            raise InputError(f"{self.path} reads sources of translations, no {texts}")

    def _encoded(self, text: str, special_tokens: bool) -> list[int]:
        if self._reads is not None:
            with library_errors(f"{self.path} cannot encode a text", _COPY):
                return self._reads(text, special_tokens)
        first, start = ([], 0) if special_tokens else self._begun(text)
        with library_errors(f"{self.path} cannot encode a text", _COPY):
            return [*first, *ids_of(self._inner, text[start:], special_tokens=special_tokens)]

    def _begun(self, text: str) -> tuple[list[int], int]:
        """Returns the id of ``bos_token`` if it begins a text and the library does not match it; and its length."""
        begin, number = self._unmatched_begin
        return ([number], len(begin)) if begin and text.startswith(begin) else ([], 0)


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"`prompt` is not valid UTF-8 (character {error.start} is {text[error.start]!a}): "
            "check the terminal's encoding"
        ) from error


def find_tokenizer(directory: Path) -> Tokenizer | None:
    """Returns the directory's tokenizer, or None without a tokenizer in a known format, or with a CTC model's.

    Raises:
        CheckpointError: tokenizer.json is damaged, or the tokenizer is of a format that is not read.
    """
    load_plugins()
    if not any((directory / name).exists() for name in (TOKENIZER_FILE, *_FOREIGN, *_READERS)):
        return None
    return None if has_characters(directory) else Tokenizer.load(directory)


def _missing(directory: Path) -> str:
    foreign = [name for name in _FOREIGN if (directory / name).exists()]
    if foreign:
        return (
            f"{directory} has {' and '.join(foreign)} but no {TOKENIZER_FILE}, and of files without one only those of "
            "SentencePiece, vocab.txt of WordPiece and vocab.json with merges.txt of byte-level BPE are read, if "
            "tokenizer_class or model_type names such a tokenizer: convert it with transformers, AutoTokenizer."
            f"from_pretrained(directory).save_pretrained(directory), and put the new {TOKENIZER_FILE} there; or work "
            "with `token_ids`"
        )
    return (
        f"{directory} has no {TOKENIZER_FILE}: copy it from the model's source, or give `token_ids` instead of `prompt`"
    )
