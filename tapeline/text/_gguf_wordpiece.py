"""WordPiece from GGUF metadata (``tokenizer.ggml.model`` bert): BERT, MiniLM, BGE, Nomic-BERT."""

from typing import Any, Final

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from lang_core import CheckpointError
from tapeline.text._gguf_vocabulary import PREFIX, TokenType, Vocabulary

_WORD: Final = "▁"  # llama.cpp's mark of a piece that begins a word; BERT marks the others
_INSIDE: Final = "##"
_PLAIN: Final = (TokenType.NORMAL, TokenType.UNDEFINED, TokenType.UNUSED)
_AROUND: Final = {"[CLS]": ("bos_token_id", "cls_token_id"), "[SEP]": ("seperator_token_id", "eos_token_id")}
_NAMED: Final = ("unknown_token_id", "padding_token_id", "mask_token_id")
_LONGEST: Final = 100  # characters of a word; longer ones are unknown


def word_piece(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer, and that a further token before texts is not needed: it has its own around them.

    A token that a field names, or that is special by its name, is not a piece, also in a file without types.

    Older files do not say whether texts are made lower case; they are, unless a piece has an upper-case letter.

    Raises:
        CheckpointError: the tokens that begin and end texts, or that of unknown words, are missing.
    """
    fields = (*_NAMED, *(field for listed in _AROUND.values() for field in listed))
    whole = {*vocabulary.whole(), *(vocabulary.token(field) for field in fields if field in vocabulary.fields)}
    kinds = [
        (token, TokenType.CONTROL if token in whole and not token.startswith(_WORD) else kind)
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]
    plain = [token for token, kind in kinds if kind in _PLAIN]
    ids: dict[str, int] = {}
    for index, (token, kind) in enumerate(kinds):
        ids.setdefault(_piece(token) if kind in _PLAIN else token, index)
    unknown = vocabulary.token("unknown_token_id") or "[UNK]"
    around = {name: _around(vocabulary, ids, name) for name in _AROUND}
    if unknown not in ids:
        raise CheckpointError(f"{vocabulary.path}: {PREFIX}tokens: expected {unknown!r} among them: convert it again")
    cased = any(letter.isupper() for token in plain if not _is_bracketed(_piece(token)) for letter in token)
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=_LONGEST))
    lower = vocabulary.flag("normalizer.lowercase", not cased)
    accents = vocabulary.flag("normalizer.strip_accents", lower)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=_INSIDE)
    named: Any = [{"id": name, "ids": [ids[token]], "tokens": [token]} for name, token in around.items()]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=named
    )
    return tokenizer, False


def _piece(token: str) -> str:
    """Returns BERT's form of a piece."""
    return token.removeprefix(_WORD) if token.startswith(_WORD) else f"{_INSIDE}{token}"


def _is_bracketed(token: str) -> bool:
    """Returns whether a token is one such as [unused1], which texts do not have."""
    return token.startswith("[") and token.endswith("]")


def _around(vocabulary: Vocabulary, ids: dict[str, int], name: str) -> str:
    """Returns the token that begins or ends texts: that of a field, or under BERT's own name."""
    tokens = (vocabulary.token(field) for field in _AROUND[name] if field in vocabulary.fields)
    token = next(tokens, name)
    if token not in ids:
        raise CheckpointError(f"{vocabulary.path}: {PREFIX}tokens: expected {token!r} among them: convert it again")
    return token
