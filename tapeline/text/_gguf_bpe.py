"""Byte-level BPE from GGUF metadata (``tokenizer.ggml.model`` gpt2): GPT-2, Llama 3, Qwen, and most of today's."""

# Letters of many scripts stand in the patterns.
# ruff: noqa: RUF001

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from lang_core import CheckpointError, near_names, some_of
from tapeline.text._gguf_vocabulary import PREFIX, Vocabulary

_ENGLISH: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LINES: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3: Final = _ENGLISH + "|" + _LETTERS + r"|\p{N}{1,3}" + _MARKS + _LINES
_JAIS2: Final = _LLAMA3.removesuffix(r"|\s+(?!\S)|\s+") + "".join(
    rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")
) + r"|\s"  # fmt: skip
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _LINES
_SEED: Final = _QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_BAILING: Final = r"'(?i:[sdmt]|ll|ve|re)|" + _LETTERS + r"|\p{N}" + _MARKS + r"|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE: Final = (
    _ENGLISH + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_DEEPSEEK_TEXT: Final = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    + _LINES
)
_JAPANESE: Final = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3: Final = (r"\p{N}{1,3}", _JAPANESE, _DEEPSEEK_TEXT)
_SPARK: Final = (
    r"\p{N}{1,3}",
    _JAPANESE,
    _DEEPSEEK_TEXT.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]"),
    r"\p{N}",
)
_HAN: Final = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_LATIN: Final = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3"
    "ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM: Final = (
    "[\r\n]",
    rf"\s?[{_LATIN}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    _HAN,
    r"\p{N}+",
)
_DEEPSEEK_CODER: Final = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, r"\p{N}")
_FALCON: Final = (r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, "[0-9][0-9][0-9]")
_BLOOM: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"
_UPPER: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER: Final = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SLASHES: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _LINES
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}" + _SLASHES
)
_CASES: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENGLISH}?|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENGLISH}?"
)
_GPT4O: Final = _CASES + r"|\p{N}{1,3}" + _SLASHES
_NO_HAN: Final = r"&&[^\p{Han}]"
_KIMI: Final = (
    rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]*[{_LOWER}{_NO_HAN}]+{_ENGLISH}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}{_NO_HAN}]+[{_LOWER}{_NO_HAN}]*{_ENGLISH}?|\p{{N}}{{1,3}}" + _MARKS + _LINES
)
_YOUTU: Final = (
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _CASES + r"|\p{N}" + _SLASHES,
)
_AFMOE: Final = (
    r"(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}+",
    "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
    _DEEPSEEK_TEXT,
)
_CHAMELEON: Final = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _WORDS,
)


class _Split(NamedTuple):
    """Splitting of text before merging (``tokenizer.ggml.pre``), as llama.cpp does for the name.

    Attributes:
        patterns: of pieces, each for the pieces of the one before; that of GPT-2 if there is none.
        digits: whether each digit is a piece first.
        whole: whether a piece that is a token is not merged anew (``ignore_merges``).
        bos: whether the first token is put before a text if the file does not say.
        composed: whether text is brought into Unicode's form C first.
    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    whole: bool = False
    bos: bool = False
    composed: bool = False


_GPT2: Final = _Split()
_DIGITS: Final = _Split(digits=True)
_DEFAULT: Final = "default"
_KIMI_K2: Final = _Split((_KIMI,))
MARKED: Final = ("gemma4", "sarvam-moe", "granite-embed-multi-311m")
"""Names of splittings of texts with SentencePiece's marks for spaces, which merge over the whole text."""
_SPLITS: Final = {
    _DEFAULT: _Split((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")),
    **dict.fromkeys(
        (
            *("gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "mellum", "modern-bert", "exaone4", "gigachat"),
            *("jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code", "a.x-4.0", "trillion"),
            "granite-docling",
        ),
        _GPT2,
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _DIGITS
    ),
    **dict.fromkeys(
        (
            *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
            "jina-v5-nano",
        ),
        _Split((_LLAMA3,), whole=True, bos=True),
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _Split((_LLAMA3,))),
    "glm4": _Split((_LLAMA3,), whole=True),
    "minicpm5": _Split((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), whole=True),
    "jais-2": _Split((_JAIS2,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "f2llmv2"), _Split((_QWEN2,), composed=True)),
    "qwen35": _Split((_QWEN35,), composed=True),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), _Split((_QWEN2,))),
    "laguna": _Split((r"[^\n]+|\n+", _QWEN2)),
    "ufakzeka": _Split((_QWEN2.removeprefix(_ENGLISH + "|"),)),
    "seed-coder": _Split((_SEED,)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _Split((_BAILING,))),
    "exaone-moe": _Split((_EXAONE_MOE,)),
    "deepseek-llm": _Split(_DEEPSEEK_LLM),
    "deepseek-coder": _Split(_DEEPSEEK_CODER),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _Split(_DEEPSEEK3)),
    "spark2_5": _Split(_SPARK),
    "afmoe": _Split(_AFMOE),
    "youtu": _Split(_YOUTU, whole=True),
    "falcon": _Split(_FALCON),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _Split((_BLOOM,))),
    "viking": _Split((_BLOOM, r"\p{N}")),
    "tekken": _Split((_TEKKEN,), whole=True, bos=True),
    "chameleon": _Split(_CHAMELEON, bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"), _Split((_GPT4O,))),
    "granite-embed-multi-97m": _Split((_GPT4O,), whole=True),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _Split((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))),
    "kimi-k2": _KIMI_K2,
    "superbpe": _Split((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
}


class UnreadTokenizerError(CheckpointError):
    """The file's tokenizer is of a kind that is not read; the model can be exported without it."""


def byte_level_bpe(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer, and whether the first token is put before texts if the file does not say.

    Raises:
        UnreadTokenizerError: text is to be cut in a way that is not known.
        CheckpointError: the merges are damaged.
    """
    split = _split_of(vocabulary)
    ids = vocabulary.ids()
    merges = vocabulary.merges() if "merges" in vocabulary.fields or split is not _KIMI_K2 else _ranked(ids)
    try:
        tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=split.whole))
    except Exception as error:  # the library raises bare Exceptions
        raise CheckpointError(
            f"{vocabulary.path}: {PREFIX}merges do not fit the tokens ({error}): convert the model again"
        ) from error
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(split)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, split.bos


def _ranked(ids: dict[str, int]) -> list[tuple[str, str]]:
    """Returns the merges of a vocabulary that lists none, in the order of the ids of their results (tiktoken)."""
    merges: list[tuple[str, str]] = []
    for token in sorted(ids, key=ids.__getitem__):
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        merges += [(left, right) for left, right in cuts if left in ids and right in ids]
    return merges


def _split_of(vocabulary: Vocabulary) -> _Split:
    name = vocabulary.fields.get("pre", _DEFAULT)  # which llama.cpp takes for files that are older than the field
    split = _SPLITS.get(name) if isinstance(name, str) else None
    if split is None:
        hint = near_names(name, _SPLITS) if isinstance(name, str) else ""
        raise UnreadTokenizerError(
            f"{vocabulary.path}: {PREFIX}pre: expected one of {some_of(str(name), _SPLITS)}; found {name!r:.80}{hint}"
        )
    return split


def _pre_tokenizer(split: _Split) -> Any:
    if not split.patterns:
        pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return (
            pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pieces]) if split.digits else pieces
        )
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in split.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def matching_splits(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Returns the names of the splittings that a tokenizer has, by what they do to texts; those by patterns first.

    Args:
        tokenizer: byte-level BPE.
        texts: texts of many kinds.
    """
    known = [text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text) for text in texts]
    pieces = _pieces_of(tokenizer.pre_tokenizer, known)
    whole = bool(getattr(tokenizer.model, "ignore_merges", False))
    composed = "NFC" in str(tokenizer.normalizer)
    names = [
        name
        for name, split in _SPLITS.items()
        if split.composed == composed and split.whole == whole and _pieces_of(_pre_tokenizer(split), known) == pieces
    ]
    return sorted(names, key=lambda name: name == _DEFAULT)


def _pieces_of(pre_tokenizer: Any, texts: Iterable[str]) -> list[list[Any]]:
    return [] if pre_tokenizer is None else [pre_tokenizer.pre_tokenize_str(text) for text in texts]
