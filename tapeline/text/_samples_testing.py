"""Tokenizers of every decoding scheme in use, small, for the tests."""

import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = (
    "The tape tells the whole story, one line for each step: über, naïve, 日本語, 🙂 and more.",
    "the tape  is the tape  and a token is a piece of the text, isn't it?",
)
SPECIAL = ("<s>", "</s>")


def byte_level() -> Tokenizer:
    """GPT-2, Llama 3, Qwen: a token is bytes, and a character can be in several."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[*SPECIAL], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Llama 2, TinyLlama, Mistral: `▁` for a space, one before the text, and bytes for what is in no token."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    known = [*"▁abcdehilnopstTé,日�"]
    vocabulary = {token: index for index, token in enumerate(("<unk>", *SPECIAL, *byte_tokens, *known))}
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("t", "o"), ("▁", "a"), ("▁", "▁")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(["<unk>", *SPECIAL])
    return tokenizer


def byte_fallback_without_strip() -> Tokenizer:
    """Gemma: as Llama 2, with no space before the text."""
    tokenizer = byte_fallback()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def metaspace() -> Tokenizer:
    """T5 and other unigram models: `▁` before every word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """BERT: `##` inside a word, spaces from nowhere, tidied before punctuation."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def word_suffix() -> Tokenizer:
    """CLIP, GPT-1: `</w>` ends a word."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", *SPECIAL], end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def no_decoder() -> Tokenizer:
    """A vocabulary of words without a decoder: joined with spaces."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "the": 2, "tape": 3, "is": 4}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


def metadata_of(tokenizer: Tokenizer, **more: Any) -> dict[str, Any]:
    """Returns the metadata that a converter writes for a BPE tokenizer; scores fall with the ranks of merges."""
    state = json.loads(tokenizer.to_str())
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(ids, key=lambda token: ids[token])
    added = {token["content"]: token["special"] for token in state["added_tokens"]}
    types = [(3 if added[token] else 4) if token in added else 1 for token in tokens]
    merges = [tuple(pair) for pair in state["model"]["merges"]]
    fields: dict[str, Any] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.bos_token_id": ids["<s>"]}
    if state["model"]["byte_fallback"]:
        types = [2 if token == "<unk>" else kind for token, kind in zip(tokens, types, strict=True)]
        types = [6 if token.startswith("<0x") else kind for token, kind in zip(tokens, types, strict=True)]
        rank = {left + right: index for index, (left, right) in enumerate(merges)}
        scores = [float(-rank.get(token, 1000 + index)) for index, token in enumerate(tokens)]
        fields |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores}
    else:
        joined = [" ".join(pair) for pair in merges]
        fields |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": joined}
    fields |= {
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_bos_token": state["post_processor"] is not None,
    }
    return fields | {f"tokenizer.{key}": value for key, value in more.items()}


SCHEMES: tuple[Callable[[], Tokenizer], ...] = (
    byte_level,
    byte_fallback,
    byte_fallback_without_strip,
    metaspace,
    word_piece,
    word_suffix,
    no_decoder,
)
