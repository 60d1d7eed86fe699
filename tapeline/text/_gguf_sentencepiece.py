"""SentencePiece's BPE from GGUF metadata (``tokenizer.ggml.model`` llama): Llama 2, Mistral, Gemma, Phi-3."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from lang_core import CheckpointError
from tapeline.text._gguf_bpe import UnreadTokenizerError
from tapeline.text._gguf_ties import TiedMerges, TiesError
from tapeline.text._gguf_vocabulary import PREFIX, TokenType, Vocabulary

_SPACE: Final = "▁"
_MOST_LETTERS: Final = 1 << 31  # of the squared lengths of all tokens: every token is cut everywhere
_MOST_MERGES: Final = 1 << 21
_BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
_TEXT: Final = (TokenType.NORMAL, TokenType.UNUSED, TokenType.UNDEFINED)


def sentencepiece_bpe(vocabulary: Vocabulary, *, ordered: bool) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer, and that the first token is put before texts if the file does not say otherwise.

    Args:
        vocabulary: of the file.
        ordered: whether tokens are merged in the order of their ids and not of their scores (Gemma: its scores do not
            follow the order of its merges).

    Raises:
        CheckpointError: scores are missing or of another number.
    """
    scores = vocabulary.listed("scores", float, int)
    if scores is None:
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}scores are missing, expected one per token: convert the model again"
        )
    scores = [float(-index) for index in range(len(scores))] if ordered else _as_stored(vocabulary, scores)
    ids = _spelled(vocabulary, _text_letters(vocabulary))
    prefix = vocabulary.flag("add_space_prefix", not ordered)
    return _tokenizer(vocabulary, ids, _merges(vocabulary, ids, scores), prefix=prefix), True


def _as_stored(vocabulary: Vocabulary, scores: list[float]) -> list[float]:
    """Returns scores in f32, in which llama.cpp compares them.

    Raises:
        CheckpointError: a score is NaN.
    """
    stored = np.asarray(scores, np.float32)
    if np.isnan(stored).any():
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}scores: expected numbers; entry {int(np.isnan(stored).argmax())} is NaN: "
            "convert the model again"
        )
    return [float(score) for score in stored]


def listed_bpe(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer of a file that lists its merges (Gemma 4); otherwise as ``sentencepiece_bpe``.

    Runs of line breaks are merged apart from other text, as in llama.cpp.

    Raises:
        UnreadTokenizerError: a merge joins a letter that is not a token, or merges do not make a run of line breaks.
        CheckpointError: merges are missing or damaged.
    """
    prefix = vocabulary.flag("add_space_prefix", False)
    listed = vocabulary.merges()
    ids = _spelled(vocabulary, {part for pair in listed for part in pair if len(part) == 1})
    merges = [pair for pair in listed if not _makes_spaces(pair, ids)]
    for part in (part for pair in merges for part in pair if len(part) == 1 and part not in ids):
        raise UnreadTokenizerError(_unspelled(vocabulary, "merges", part))
    _check_breaks(vocabulary, merges)
    tokenizer = _tokenizer(vocabulary, ids, merges, prefix=prefix)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), behavior="isolated")
    return tokenizer, True


def _check_breaks(vocabulary: Vocabulary, merges: Sequence[tuple[str, str]]) -> None:
    """Checks that merges make each run of line breaks that is a token: llama.cpp takes such a run whole.

    Raises:
        UnreadTokenizerError: they do not make a run.
    """
    ranks = {pair: rank for rank, pair in reversed([*enumerate(merges)])}
    named = zip(vocabulary.tokens, vocabulary.types, strict=True)
    for token in (token for token, kind in named if kind in _TEXT and token and not token.strip("\n")):
        parts = [*token]
        while len(parts) > 1:
            best = min(
                ((ranks[pair], place) for place, pair in enumerate(itertools.pairwise(parts)) if pair in ranks),
                default=None,
            )
            if best is None:
                raise UnreadTokenizerError(
                    f"{vocabulary.path}: {PREFIX}merges: expected merges that make the token {token!r:.40} of line "
                    f"breaks; found {len(parts)} parts: convert the model again"
                )
            parts[best[1] : best[1] + 2] = ["".join(parts[best[1] : best[1] + 2])]


def _text_letters(vocabulary: Vocabulary) -> set[str]:
    """Returns the letters of tokens that texts are merged to; spaces of a text are marks before any merge."""
    return {letter for token in _text_tokens(vocabulary) for letter in token}


def _text_tokens(vocabulary: Vocabulary) -> list[str]:
    """Returns the tokens that letters can be merged to, also in a file without types."""
    names = {*_BYTES, *vocabulary.whole()}
    named = zip(vocabulary.tokens, vocabulary.types, strict=True)
    return [token for token, kind in named if kind in _TEXT and " " not in token and token not in names]


def _spelled(vocabulary: Vocabulary, letters: set[str]) -> dict[str, int]:
    """Returns the ids of tokens, in which a letter of ASCII that is not a token replaces its byte token.

    llama.cpp merges letters and not tokens: of the letter alone it takes the byte token. The library merges tokens.
    """
    ids = vocabulary.ids()
    for letter in letters - ids.keys():
        name = _BYTES[ord(letter)] if letter.isascii() else ""
        if name in ids and not any(name[:cut] in ids and name[cut:] in ids for cut in range(1, len(name))):
            ids[letter] = ids.pop(name)
    return ids


def _unspelled(vocabulary: Vocabulary, field: str, letter: str, token: str | None = None) -> str:
    """Returns the message for a letter that is not a token."""
    made = "" if token is None else f" in the token {token!r:.40}"
    return (
        f"{vocabulary.path}: {PREFIX}{field}: {letter!r}{made} is merged, but is no token itself: "
        f"add {letter!r} to the tokens and convert the model again"
    )


def _makes_spaces(pair: tuple[str, str], ids: dict[str, int]) -> bool:
    """Returns whether a merge makes a run of spaces that is not a token of BPE: the converter writes runs plainly.

    Such a run is matched whole, before any merge.
    """
    made = pair[0] + pair[1]
    return made not in ids and made.replace(_SPACE, " ") in ids and not made.strip(_SPACE)


def _tokenizer(
    vocabulary: Vocabulary, ids: dict[str, int], merges: list[tuple[str, str]], *, prefix: bool
) -> Tokenizer:
    """Returns a BPE of texts with marks for spaces, with ``prefix`` one before them, and bytes for unknown letters."""
    named = zip(vocabulary.tokens, vocabulary.types, strict=True)
    marked = next((token for token, kind in named if kind is TokenType.UNKNOWN), None)
    model = models.BPE(
        ids,
        merges,
        unk_token=vocabulary.token("unknown_token_id") or marked,
        fuse_unk=True,
        byte_fallback={*_BYTES} <= {*vocabulary.tokens},
    )
    tokenizer = Tokenizer(model)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    spaces = normalizers.Replace(" ", _SPACE)
    if prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(vocabulary: Vocabulary, ids: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Returns every pair of tokens that makes a token, best first.

    SentencePiece and llama.cpp do not use a list of merges: of all neighbours that make a token, the pair with the
    highest score is merged first, and of equal ones the leftmost. That is a list of merges in the order of scores.
    Pairs of one token can stand in any order: if two symbols make a token, they were made of its letters alone, by the
    same merges wherever the letters stand, so that only one pair ever makes it.

    Raises:
        UnreadTokenizerError: tokens have equal scores, and a list of merges cannot do the same; or a letter that is not
            a token is merged.
    """
    plain = (*_TEXT, TokenType.USER_DEFINED)
    pairs: dict[str, list[tuple[int, int, int, int, str, str]]] = {}
    ranks: dict[str, float] = {}
    letters = count = 0
    for index, token in enumerate(vocabulary.tokens):
        if vocabulary.types[index] not in plain or ids.get(token) != index:
            continue
        letters += len(token) ** 2
        if letters > _MOST_LETTERS or count > _MOST_MERGES:
            raise UnreadTokenizerError(
                f"{vocabulary.path}: {PREFIX}tokens: finding the merges takes more than {_MOST_LETTERS} steps or finds "
                f"more than {_MOST_MERGES}; found at {token!r:.40}: convert the model again"
            )
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                count += 1
                ranks[token] = -scores[index]
                pairs.setdefault(token, []).append((-len(left), -len(right), ids[left], ids[right], left, right))
    _check_letters(vocabulary, ids, scores)
    named = zip(vocabulary.tokens, vocabulary.types, strict=True)
    matched = {token for token, kind in named if kind is TokenType.USER_DEFINED and _SPACE not in token}
    tied = _tied({token: rank for token, rank in ranks.items() if token not in matched})
    places = {}
    if tied:
        try:
            places = TiedMerges(ranks).ordered(tied)
        except TiesError as error:
            raise UnreadTokenizerError(f"{vocabulary.path}: {PREFIX}scores: {error}: convert the model again") from None
    ordered = sorted(
        (ranks[token], places.get(token, 0), *pair[:2], ids[token], *pair[2:])
        for token, listed in pairs.items()
        for pair in listed
    )
    return [(left, right) for *_, left, right in ordered]


def _check_letters(vocabulary: Vocabulary, ids: Mapping[str, int], scores: Sequence[float]) -> None:
    """Checks that merges never make a token with a letter that is not a token.

    Raises:
        UnreadTokenizerError: a text is.
    """
    missing = _text_letters(vocabulary) - ids.keys()
    if not missing:
        return
    longer = [token for token in _text_tokens(vocabulary) if len(token) > 1]
    merging = TiedMerges({token: -scores[ids[token]] for token in longer})
    for token in longer:
        letter = next((letter for letter in token if letter in missing), None)
        if letter is not None and merging.is_made(token):
            raise UnreadTokenizerError(_unspelled(vocabulary, "tokens", letter, token))


def _tied(ranks: dict[str, float]) -> list[list[str]]:
    """Returns the tokens of equal rank, if there are several."""
    classes: dict[float, list[str]] = {}
    for token, rank in ranks.items():
        classes.setdefault(rank, []).append(token)
    return [tokens for tokens in classes.values() if len(tokens) > 1]
