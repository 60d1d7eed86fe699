"""Byte-level BPE from GGUF metadata (``tokenizer.ggml.model`` gpt2): GPT-2, Llama 3, Qwen, and most of today's."""

from typing import Any, Final, NamedTuple

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from lang_core import CheckpointError, near_names
from tapeline.text._gguf_vocabulary import PREFIX, Vocabulary

_ENGLISH: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SEED: Final = _QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_DEEPSEEK3: Final = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_UPPER: Final = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER: Final = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}" + _REST
)
_GPT4O: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENGLISH}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENGLISH}?|\p{{N}}{{1,3}}" + _REST
)


class _Split(NamedTuple):
    """Splitting of text before merging (``tokenizer.ggml.pre``), as llama.cpp does for the name.

    Attributes:
        patterns: of pieces, each for the pieces of the one before; that of GPT-2 where there is none.
        digits: whether each digit is a piece first.
        whole: whether a piece that is a token is not merged anew (``ignore_merges``).
        bos: whether the first token is put before a text where the file does not say.
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
_SPLITS: Final = {
    _DEFAULT: _Split(
        (
            r"[\p{P}\$\+<=>\^~\|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+",
            r"[0-9][0-9][0-9]",
        )
    ),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe", "mellum", "modern-bert", "exaone4"), _GPT2
    ),
    **dict.fromkeys(("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _Split((_LLAMA3,), whole=True, bos=True),
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _Split((_LLAMA3,))),
    "glm4": _Split((_LLAMA3,), whole=True),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez"), _Split((_QWEN2,), composed=True)),
    **dict.fromkeys(("stablelm2", "hunyuan"), _Split((_QWEN2,))),
    "seed-coder": _Split((_SEED,)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _Split(_DEEPSEEK3)),
    "tekken": _Split((_TEKKEN,), whole=True, bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "minimax-m2"), _Split((_GPT4O,))),
}


class UnreadTokenizerError(CheckpointError):
    """The file's tokenizer is of a kind that is not read; the model can be exported without it."""


def byte_level_bpe(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """Returns the tokenizer, and whether the first token is put before texts where the file does not say.

    Raises:
        UnreadTokenizerError: text is to be cut in a way that is not known.
        CheckpointError: the merges are damaged.
    """
    split = _split_of(vocabulary)
    merges = vocabulary.merges()
    ids = vocabulary.ids()
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


def _split_of(vocabulary: Vocabulary) -> _Split:
    name = vocabulary.fields.get("pre", _DEFAULT)  # which llama.cpp takes for files that are older than the field
    split = _SPLITS.get(name) if isinstance(name, str) else None
    if split is None:
        hint = near_names(name, _SPLITS) if isinstance(name, str) else ""
        raise UnreadTokenizerError(
            f"{vocabulary.path}: {PREFIX}pre: expected one of {', '.join(_SPLITS)}; found {name!r:.80}{hint}"
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
