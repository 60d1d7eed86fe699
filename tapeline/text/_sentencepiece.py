"""The tokenizer of a directory with only a SentencePiece file as vocabulary (``tokenizer.model``).

Each class reads the file as transformers 5.23 does, which may differ from SentencePiece: merges have the order of ids
and not of scores, and some rules for spaces are not applied.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from tapeline.text._sentencepiece_model import ModelType, PieceType, SentencePieceModel
from tapeline.text._tokenizer_classes import CHARACTER_MAP, CLASSES, PLAIN, Arguments

_SPACE: Final = "▁"
_COMMON: Final = "tokenizer.model"
# Names of the file that a class knows, of which the first wins.
_FILES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        PLAIN: (_COMMON,),
        "LlamaTokenizer": (_COMMON,),
        "CodeLlamaTokenizer": (_COMMON,),
        "GemmaTokenizer": (_COMMON,),
        "T5Tokenizer": (_COMMON, "spiece.model"),
        "XLMRobertaTokenizer": (_COMMON, "sentencepiece.bpe.model"),
    }
)
_MOST_SENTINELS: Final = 10_000


def sentencepiece_file(directory: Path, name: str) -> Path | None:
    """Returns the file of SentencePiece that a class reads; None if the directory has none.

    Args:
        directory: of the tokenizer.
        name: of the class.
    """
    paths = (directory / file for file in _FILES.get(name, ()))
    return next((path for path in paths if path.is_file()), None)


def set_arguments(model: SentencePieceModel, arguments: Arguments, name: str) -> None:
    """Sets the arguments of a class that the file gives: tokens that are matched whole, and the map of characters."""
    matched = (PieceType.CONTROL, PieceType.USER_DEFINED)
    arguments["additional_special_tokens"] = [
        AddedToken(piece.text, normalized=False, special=piece.kind is PieceType.CONTROL)
        for piece in model.pieces
        if piece.kind in matched
    ]
    if name == PLAIN:
        for token, text in model.tokens.items():
            arguments.setdefault(f"{token}_token", text)
    else:
        arguments[CHARACTER_MAP] = model.character_map or None


def merged_model(model: SentencePieceModel) -> Tokenizer:
    """Returns the tokenizer of a class that merges pieces (BPE), without options."""
    ids = _ids(model)
    return Tokenizer(models.BPE(ids, _merges(ids)))


def scored_pieces(model: SentencePieceModel, arguments: Arguments, name: str) -> list[tuple[str, float]]:
    """Returns pieces and scores in the order of ids, as a class with Unigram has them.

    Raises:
        ValueError: an argument cannot be used.
    """
    pieces = [(piece.text, piece.score) for piece in model.pieces]
    if name == "T5Tokenizer":
        count = arguments.get("extra_ids", 100)
        if count not in range(_MOST_SENTINELS + 1):
            raise ValueError(f"extra_ids: expected 0 to {_MOST_SENTINELS}; found {count!r:.40}")
        return pieces + [(f"<extra_id_{number}>", 0.0) for number in range(count - 1, -1, -1)]
    stated = {
        key: str(arguments.get(f"{key}_token", default))
        for key, default in (("bos", "<s>"), ("pad", "<pad>"), ("eos", "</s>"), ("unk", "<unk>"), ("mask", "<mask>"))
    }
    mask = stated.pop("mask")
    return [*((token, 0.0) for token in stated.values()), *pieces[3:], (mask, 0.0)]


def plain_tokenizer(model: SentencePieceModel, renamed: Mapping[int, AddedToken]) -> Tokenizer:
    """Returns the whole tokenizer of a directory without a class of its own.

    Args:
        model: of the file.
        renamed: tokens of ``added_tokens_decoder`` by id, which take the places of placeholders.
    """
    unknown = model.tokens.get("unk")
    if model.kind is ModelType.UNIGRAM:
        pieces = [(piece.text, piece.score) for piece in model.pieces]
        inner: Any = models.Unigram(pieces, unk_id=model.unknown, byte_fallback=model.byte_fallback)
    else:
        ids = _ids(model)
        merges = _merges(ids)
        placed = {number: token for token, number in ids.items()}
        for number, token in renamed.items():
            current = placed.get(number)
            if current and token.content not in ids:
                ids[token.content] = ids.pop(current)
                placed[number] = token.content
        inner = models.BPE(ids, merges, unk_token=unknown or "<unk>", fuse_unk=True, byte_fallback=model.byte_fallback)
    tokenizer = Tokenizer(inner)
    spaces: list[Any] = [normalizers.Replace(" ", _SPACE)]
    mapped: list[Any] = [normalizers.Precompiled(model.character_map)] if model.character_map else []
    tokenizer.normalizer = normalizers.Sequence([*mapped, *spaces])
    tail: list[Any] = [decoders.ByteFallback(), decoders.Fuse()] if model.byte_fallback else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), *tail])
    return tokenizer


def ignored_rules(model: SentencePieceModel, arguments: Arguments, name: str) -> str:
    """Returns a note about rules of the file that transformers' class does not apply; empty if it applies all.

    Args:
        model: of the file.
        arguments: of the class, as the files have them.
        name: of the class.
    """
    merges = name in ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer")
    words = name in ("T5Tokenizer", "XLMRobertaTokenizer")
    stated = arguments.get("add_prefix_space")
    adds = words or (name in ("LlamaTokenizer", "CodeLlamaTokenizer") and (stated is None or bool(stated)))
    ignored = {
        f"add_dummy_prefix={str(model.adds_prefix).lower()}": model.adds_prefix != adds,
        f"remove_extra_whitespaces={str(model.removes_spaces).lower()}": model.removes_spaces != words,
        "precompiled_charsmap": bool(model.character_map) and merges,
        "byte_fallback=true": model.byte_fallback and words,
        "unk_piece": _names_another_unknown(model, arguments, name),
        "user_defined_symbols": isinstance(arguments.get("extra_special_tokens"), list)
        and any(piece.kind is PieceType.USER_DEFINED for piece in model.pieces),
        "model_type": name != PLAIN and (model.kind is ModelType.UNIGRAM) != words,
    }
    rules = ", ".join(rule for rule, missing in ignored.items() if missing)
    if not rules:
        return ""
    return f"{model.path}: {name} of transformers does not apply {rules}: ids can differ from SentencePiece's"


def _names_another_unknown(model: SentencePieceModel, arguments: Arguments, name: str) -> bool:
    """Returns whether unknown letters get another id than SentencePiece's, or none (Llama)."""
    if name == "T5Tokenizer":
        return model.unknown != CLASSES[name].unknown
    if model.byte_fallback or name in (PLAIN, "XLMRobertaTokenizer"):
        return False
    return name == "LlamaTokenizer" or str(arguments.get("unk_token", "<unk>")) != model.tokens.get("unk")


def _ids(model: SentencePieceModel) -> dict[str, int]:
    return {piece.text: number for number, piece in enumerate(model.pieces)}


def _merges(ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Returns every pair of pieces that makes a piece, in the order of the ids of the results."""
    return [
        (token[:cut], token[cut:])
        for token in sorted(ids, key=ids.__getitem__)
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
