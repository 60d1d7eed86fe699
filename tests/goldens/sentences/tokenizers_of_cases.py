"""Tokenizers of tiny models of sentence-transformers, one of each kind, in the form of tokenizer.json."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:!?'-ßéüñжИ日本語한"
_WORDS: Final = (
    "berlin",
    "Berlin",
    "is",
    "Is",
    "big",
    "the",
    "The",
    "cat",
    "mat",
    "on",
    "query",
    "a",
    "cafe",
    "BERLIN",
)


def _word_piece(lowercase: bool) -> tokenizers.Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, *_LETTERS, *(f"##{one}" for one in _LETTERS)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return inner


def _byte_level(single: str, pair: str, special: tuple[str, ...]) -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "b"), ("e", "r"), ("l", "i"), ("li", "n"), ("i", "s"), ("Ġ", "is"), ("c", "a"), ("t", "h")]
    pieces = [*special, *alphabet, *("".join(merge) for merge in merges)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(special))
    inner.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(one, index) for index, one in enumerate(special)]
    )
    return inner


def _unigram(single: str, pair: str, special: tuple[str, ...]) -> tokenizers.Tokenizer:
    pieces = dict.fromkeys([*(f"▁{word}" for word in _WORDS), "▁", *_LETTERS])
    scores = [(piece, 0.0) for piece in special] + [(piece, -1.0 - len(piece) / 64) for piece in pieces]
    inner = tokenizers.Tokenizer(models.Unigram(scores, special.index("<unk>"), byte_fallback=False))
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    inner.add_special_tokens([AddedToken(one, normalized=False) for one in special])
    inner.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(one, index) for index, one in enumerate(special)]
    )
    return inner


_ROBERTA: Final = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_PAIR: Final = "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0"

TOKENIZERS: Final[Mapping[str, Callable[[], tokenizers.Tokenizer]]] = {
    "bert": lambda: _word_piece(True),
    "bert_cased": lambda: _word_piece(False),
    "roberta": lambda: _byte_level("<s>:0 $A:0 </s>:0", _PAIR, _ROBERTA),
    "qwen": lambda: _byte_level("$A:0 <|end|>:0", "$A:0 $B:0 <|end|>:0", ("<|end|>", "<|im_start|>")),
    "xlmr": lambda: _unigram("<s>:0 $A:0 </s>:0", _PAIR, _ROBERTA),
    "t5": lambda: _unigram("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0", ("<pad>", "</s>", "<unk>")),
}
"""Functions that make the tokenizers, by name."""

TOKENIZER_CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "bert": {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "bert_cased": {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "roberta": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "qwen": {"eos_token": "<|end|>", "pad_token": "<|end|>"},
    "xlmr": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    "t5": {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
}
"""Special tokens of the tokenizers, as in tokenizer_config.json."""
