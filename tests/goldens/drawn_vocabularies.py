"""Vocabularies of GGUF files, drawn, of every kind of tokenizer and splitting, and texts for them.

``make_vocabulary_goldens.py`` has llama.cpp's ids of the texts.
"""

# Letters of many scripts are what is drawn.
# ruff: noqa: RUF001

import functools
import json
import random
from pathlib import Path
from typing import Any, Final, NamedTuple

from gguf import GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SPLITTINGS: Final = (
    "default", "gpt-2", "llama-bpe", "falcon3", "deepseek-llm", "deepseek-coder", "deepseek-v3", "hunyuan-dense",
    "joyai-llm", "falcon", "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "exaone4", "exaone-moe",
    "minerva-7b", "mpt", "olmo", "jais", "jais-2", "trillion", "granite-docling", "stablelm2", "qwen2", "qwen35",
    "hunyuan", "solar-open", "grok-2", "megrez", "poro-chat", "bloom", "gpt3-finnish", "viking", "glm4", "chatglm-bpe",
    "dbrx", "smaug-bpe", "tekken", "chameleon", "gpt-4o", "llama4", "minimax-m2", "tiny_aya", "kimi-k2", "superbpe",
    "bailingmoe", "seed-coder", "afmoe", "youtu", "lfm2", "pixtral", "phi-2", "roberta-bpe", "modern-bert", "mellum",
    "jina-v2-code", "jina-v2-de", "gigachat", "a.x-4.0", "minicpm5", "laguna", "ufakzeka", "spark2_5", "hy_v4",
    "kanana2", "talkie", "granite-embed-multi-97m", "cohere2moe", "llada-moe", "bailingmoe2", "mellum2", "f2llmv2",
    "jina-v5-nano",
)  # fmt: skip
"""Values of ``tokenizer.ggml.pre`` of byte-level BPE."""

_CORPUS: Final = (
    "The tape tells the whole story, isn't it? We'll see: 1, 22, 333, 4444 and 1234567. He'D said I'VE.",
    "Leading, trailing  and   inner    spaces     and the 12  is there",
    "new\nlines\n\nand\r\n\r\ntabs\t\tand \n mixed  \n\n  ends",
    "über naïve façade, 日本語のテキスト漢字, русский ТЕКСТ, العربية, ไทย, 한국어 안녕, Ελληνικά",
    "emoji 🙂🙃 and CamelCaseWords and SHOUTING and snake_case_names; i++ != --j && x[3]==y $5 <b>`c`</b>",
    "http://example.com/path?query=1&other=2#fragment // comment /* block */ don't DON'T",
)
_PIECES: Final = (
    *("the", "The", "THE", "tape", "isn't", "'ll", "'VE", "'s", "don't", "CamelCase", "snake_case", "x1y22", "a", "I"),
    *(
        "1",
        "12",
        "123",
        "1234",
        "12345678",
        "3.14",
        " ",
        "  ",
        "   ",
        "     ",
        "\n",
        "\n\n",
        "\r\n",
        "\t",
        " \n",
        "\n ",
    ),
    *(
        "!",
        "...",
        "?!",
        "(",
        ")",
        "[x]",
        "{",
        "}",
        "/",
        "//",
        "++",
        "==",
        "&&",
        "$",
        "<b>",
        "`c`",
        "#",
        "@",
        "~",
        "^_^",
    ),
    *(
        "über",
        "naïve",
        "русский",
        "ТЕКСТ",
        "日本語",
        "漢字",
        "のテキスト",
        "한국어",
        "العربية",
        "Ελληνικά",
        "🙂",
        "€",
        "½",
    ),
    *("हिन्दी", "\u00a0", "\u3000", "Title", "ABC", "dEF", "½", "^_^"),
    *(" the", " tape", " 日本", " Über", ",", ".", ", ", ". ", ": ", "-", "_", "'", '"', "…", "、", "。"),
)
_SPECIAL: Final = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>")


class Vocabulary(NamedTuple):
    """A vocabulary of a GGUF file.

    Attributes:
        name: of the case.
        architecture: ``general.architecture``.
        fields: of ``tokenizer.ggml.``; ``general.name`` too.
    """

    name: str
    architecture: str
    fields: dict[str, Any]


def texts(seed: int, count: int, special: tuple[str, ...] = _SPECIAL) -> list[str]:
    """Returns drawn texts."""
    draw = random.Random(seed)
    drawn: list[str] = []
    for _ in range(count):
        pieces = _PIECES if draw.random() < 0.7 else (*_PIECES, *special)
        drawn.append("".join(draw.choice(pieces) for _ in range(draw.randint(1, 9))))
    return drawn


def write(path: Path, vocabulary: Vocabulary) -> None:
    """Writes a file with a vocabulary and nothing else."""
    writer = GGUFWriter(path, vocabulary.architecture)
    _add_sizes(writer, vocabulary.architecture)
    for name, value in vocabulary.fields.items():
        if name == "general.name":
            writer.add_name(value)
            continue
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif name == "precompiled_charsmap":
            writer.add_array(key, bytes(value))
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: GGUFWriter, architecture: str) -> None:
    """Adds what llama.cpp reads of every model, also if it loads the vocabulary alone."""
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_eps(1e-5)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture in ("bert", "nomic-bert-moe", "t5"):
        writer.add_causal_attention(False)


def byte_level(pre: str | None, **fields: Any) -> Vocabulary:
    """Returns a vocabulary of byte-level BPE whose merges reach over the borders of words and digits."""
    base = _byte_level()
    stated = {"pre": pre} if pre is not None else {}
    return Vocabulary(f"gpt2-{pre}", "llama", {"model": "gpt2", **stated, **base, **fields})


@functools.cache
def _byte_level() -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=[*_SPECIAL], initial_alphabet=alphabet, show_progress=False, max_token_length=7
    )
    tokenizer.train_from_iterator([*_CORPUS] * 3, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    types = [(4 if token == "<think>" else 3) if token in _SPECIAL else 1 for token in tokens]
    return {
        "tokens": tokens,
        "token_type": types,
        "merges": [" ".join(pair) for pair in state["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "add_bos_token": False,
    }


def pieces(name: str, architecture: str, *, runs: bool = False, **fields: Any) -> Vocabulary:
    """Returns a vocabulary of SentencePiece's BPE.

    Args:
        name: of the case.
        architecture: of the file.
        runs: True adds runs of spaces, written plainly, as Gemma has them.
        **fields: further fields.
    """
    letters = sorted({*"".join(_CORPUS).replace(" ", "▁")} - {"ไ", "ท", "ย", "\n", "\r", "\t"})
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=letters, limit_alphabet=len(letters), show_progress=False, max_token_length=6
    )
    tokenizer.train_from_iterator([text.replace(" ", "▁") for text in _CORPUS] * 3, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    merged = [left + right for left, right in state["merges"] if "▁▁" not in left + right]
    listed = [*(letter for letter in state["vocab"] if len(letter) == 1 and letter not in "\n\r\t"), *merged]
    control = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "<|endoftext|>"]
    plain = [" " * count for count in range(2, 9)] + ["\n\n", "\t\t"] if runs else []
    tokens = [*control, *(f"<0x{byte:02X}>" for byte in range(256)), *plain, *dict.fromkeys(listed)]
    types = [2, 3, 3, 3, 3, 4, 3, *[6] * 256, *[4] * len(plain)]
    types += [1] * (len(tokens) - len(types))
    return Vocabulary(
        name,
        architecture,
        {
            "model": "llama",
            "pre": "default",
            "tokens": tokens,
            "token_type": types,
            "scores": [float(-index) for index in range(len(tokens))],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "unknown_token_id": 0,
            "add_bos_token": True,
            **fields,
        },
    )


def _named(vocabulary: Vocabulary, name: str) -> Vocabulary:
    return vocabulary._replace(fields={**vocabulary.fields, "general.name": name})


def word_pieces(name: str, *, cased: bool = False, **fields: Any) -> Vocabulary:
    """Returns a vocabulary of WordPiece, with upper-case letters if it is cased."""
    control = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["▁" + word for word in "the tape is it a i don isn see we ll ve s x1 12 naive über camel snake".split()]
    words += ["▁The", "▁Über", "▁T"] if cased else []
    marks = ["▁" + mark for mark in "!?.,()[]{}/+=&$<>#@~^_-'\":…、。日本語漢字"]
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789éïü"]
    tokens = [
        *dict.fromkeys(
            [*control, *words, *marks, *(f"▁{letter}" for letter in letters), *letters, "ape", "ing", "case"]
        )
    ]
    return Vocabulary(
        name,
        "bert",
        {
            "model": "bert",
            "tokens": tokens,
            "token_type": [3 if token in control else 1 for token in tokens],
            "bos_token_id": 2,
            "cls_token_id": 2,
            "seperator_token_id": 3,
            "unknown_token_id": 1,
            "padding_token_id": 0,
            "mask_token_id": 4,
            **fields,
        },
    )


def unigram(name: str, architecture: str, *, byte_tokens: bool = False, **fields: Any) -> Vocabulary:
    """Returns a vocabulary of SentencePiece's Unigram."""
    control = ["<pad>", "</s>", "<unk>", "<s>", "<mask>", "<think>"]
    types = [3, 3, 2, 3, 3, 4]
    scores = [0.0] * len(control)
    if byte_tokens:
        control += [f"<0x{byte:02X}>" for byte in range(256)]
        types += [6] * 256
        scores += [0.0] * 256
    words = [
        "▁the",
        "▁tape",
        "▁",
        "the",
        "tape",
        "is",
        "▁is",
        "n't",
        "don",
        "camel",
        "12",
        "123",
        "▁12",
        "日本",
        "über",
        "ive",
    ]
    letters = sorted({*"".join(_CORPUS)} - {*" \n\r\t🙂🙃ไทย한국어안녕العربيةΕλληνικά"})
    listed = [token for token in dict.fromkeys([*words, *letters]) if token not in control]
    draw = random.Random(7)
    return Vocabulary(
        name,
        architecture,
        {
            "model": "t5",
            "pre": "default",
            "tokens": [*control, *listed],
            "token_type": [*types, *[1] * len(listed)],
            "scores": [*scores, *(-2.0 - len(listed) / (index + 3) - draw.random() for index in range(len(listed)))],
            "eos_token_id": 1,
            "unknown_token_id": 2,
            "padding_token_id": 0,
            "bos_token_id": 3,
            "add_space_prefix": True,
            "remove_extra_whitespaces": True,
            **fields,
        },
    )


def vocabularies() -> list[Vocabulary]:
    """Returns every case."""
    listed = pieces("gemma4", "gemma3", runs=True)
    names = set(listed.fields["tokens"])
    merges = [
        f"{token[:cut]} {token[cut:]}"
        for token, kind in zip(listed.fields["tokens"], listed.fields["token_type"], strict=True)
        if kind == 1
        for cut in range(1, len(token))
        if token[:cut] in names and token[cut:] in names
    ]
    gemma4 = {key: value for key, value in listed.fields.items() if key not in ("scores", "pre")}
    return [
        *(byte_level(pre) for pre in SPLITTINGS),
        byte_level(None),
        pieces("llama-spm", "llama"),
        pieces("llama-spm-plain", "llama", add_space_prefix=False),
        _named(pieces("phi3", "phi3"), "Phi-3-mini-4k-instruct"),
        pieces("gemma", "gemma", runs=True, add_space_prefix=False),
        pieces("gemma3", "gemma3", runs=True, add_space_prefix=False),
        Vocabulary("gemma4", "gemma3", {**gemma4, "model": "gemma4", "merges": merges}),
        word_pieces("bert"),
        word_pieces("bert-cased", cased=True, **{"normalizer.lowercase": False}),
        word_pieces("bert-lower", cased=True, **{"normalizer.lowercase": True}),
        word_pieces("bert-accents", **{"normalizer.strip_accents": False}),
        unigram("t5", "t5"),
        unigram("t5-bytes", "t5", byte_tokens=True),
        unigram("unigram-mask", "nomic-bert-moe"),
    ]


SURROUNDED: Final = ("the tape", " the tape  is", "<think>the</s>")
"""Texts for ``flagged``, which llama.cpp puts tokens around."""


def flagged() -> list[Vocabulary]:
    """Returns small kinds with fields that say what stands around a text, changed or left out."""
    bases = {vocabulary.name: vocabulary for vocabulary in vocabularies()}
    changes: dict[str, tuple[dict[str, Any], ...]] = {
        "llama-spm": (
            *_switched("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"),
            {"bos_token_id": None}, {"bos_token_id": None, "eos_token_id": None, "add_eos_token": True},
            {"unknown_token_id": None, "add_bos_token": None},
            {"bos_token_id": 3, "eos_token_id": 4, "add_eos_token": True},
        ),
        "gemma4": _switched("add_bos_token", "add_eos_token"),
        "bert": (*_switched("add_bos_token", "add_eos_token", "add_sep_token"),
                 {"eos_token_id": 3, "add_bos_token": True}),
        "t5": (
            *_switched("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"),
            {"eos_token_id": None}, {"add_space_prefix": None, "remove_extra_whitespaces": None},
            {"add_bos_token": True, "add_eos_token": False},
        ),
        "gpt2-llama-bpe": _switched("add_bos_token", "add_eos_token"),
        "gpt2-qwen2": (*_switched("add_bos_token", "add_eos_token"), {"add_bos_token": True, "add_eos_token": True}),
        "gpt2-tekken": _switched("add_bos_token"),
        "gpt2-chameleon": _switched("add_bos_token"),
    }  # fmt: skip
    return [_changed(bases[name], change) for name, listed in changes.items() for change in listed]


_LETTERS: Final = "abcd"
_UNTYPED: Final = ("<s>", "</s>", "<unk>", "<pad>", "<|im_start|>", "<|im_end|>", "<think>", "<0x41>", "<eos>")


def tied(seed: int) -> tuple[Vocabulary, list[str]]:
    """Returns a drawn vocabulary of SentencePiece's BPE in which scores are equal, and texts of its letters."""
    draw = random.Random(seed)
    letters = _LETTERS[: draw.randint(2, 4)]
    known, joined = [*letters], draw.random() < 0.5
    for _ in range(draw.randint(2, 14)):
        if joined:
            known.append(draw.choice(known) + draw.choice(known))
        else:
            known.append("".join(draw.choice(letters) for _ in range(draw.randint(2, 4))))
    longer = sorted({token for token in known if 1 < len(token) < 9}, key=lambda token: (len(token), token))
    kind = draw.random()
    if kind < 0.6:  # of a trained vocabulary, in which a few scores are those of the token before
        scores = [float(-index) for index in range(len(longer))]
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(longer))
            scores[place] = scores[max(0, place - 1)]
    elif kind < 0.85:
        scores = [float(-len(token)) for token in longer]
    elif kind < 0.95:
        scores = [float(-draw.randint(1, len(longer))) for _ in longer]
    else:
        scores = [-1000.0] * len(longer)
    control = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    fields = {
        "model": "llama",
        "pre": "default",
        "tokens": [*control, *longer],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(longer))],
        "scores": [*[0.0] * len(control), *scores],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": False,
        "add_space_prefix": False,
    }
    drawn = ["".join(draw.choice(letters) for _ in range(draw.randint(2, 14))) for _ in range(40)]
    return Vocabulary(f"tied-{seed}", "llama", fields), drawn


_SPELLING: Final = "ab\n\té漢"


def spelled(seed: int) -> tuple[Vocabulary, list[str]]:
    """Returns a drawn vocabulary of SentencePiece's BPE in which letters of tokens are no tokens, and texts for it.

    A letter that is no token has its byte tokens. Some vocabularies have no types, some list their merges (Gemma 4).
    """
    draw = random.Random(seed)
    letters = draw.sample(_SPELLING, draw.randint(2, 4))
    missing = draw.sample(letters, draw.randint(1, len(letters)))
    if draw.random() < 0.6:  # byte tokens stand for each of ASCII's letters; others can make a file that is refused
        missing = [letter for letter in missing if letter.isascii()] or ["\n"]
    known = [*letters]
    for _ in range(draw.randint(1, 8)):
        known.append(draw.choice(known) + draw.choice(known))
    longer = [*dict.fromkeys(token for token in known if 1 < len(token) < 9)]
    draw.shuffle(longer)
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    there = [letter for letter in letters if letter not in missing]
    tokens = ["<unk>", "<s>", "</s>", *bytes_of, *there, *longer]
    fields: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "scores": [*[0.0] * (259 + len(there)), *(float(-index) for index in range(len(longer)))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": False,
        "add_space_prefix": False,
    }
    if draw.random() < 0.5:
        fields["token_type"] = [2, 3, 3, *[6] * 256, *[1] * (len(there) + len(longer))]
    architecture = draw.choice(["llama", "gemma", "gemma3"])
    there = [*tokens, *letters] if draw.random() < 0.5 else tokens
    pairs = [(token[:cut], token[cut:]) for token in longer for cut in range(1, len(token))]
    listed = [f"{left} {right}" for left, right in pairs if left in there and right in there and draw.random() < 0.8]
    if listed and draw.random() < 0.3:
        fields |= {"model": "gemma4", "merges": listed}
        del fields["scores"], fields["pre"]
        if draw.random() < 0.3:
            fields |= {"model": "gpt2", "pre": draw.choice(["sarvam-moe", "granite-embed-multi-311m"])}
    drawn = ["".join(draw.choice(letters) for _ in range(draw.randint(1, 12))) for _ in range(30)]
    drawn += ["<0x0A>", f"{letters[0]}<0x09>"]
    return Vocabulary(f"spelled-{seed}", architecture, fields), drawn


def untyped() -> list[tuple[Vocabulary, list[str]]]:
    """Returns vocabularies without types of tokens, or whose tokens all have the type of text, and texts for them."""
    bases = {vocabulary.name: vocabulary for vocabulary in vocabularies()}
    drawn = [*texts(5, 12, _UNTYPED), *(f"a{token} the" for token in _UNTYPED), "the\n\ntape\n", "\n\n\n"]
    cases: list[tuple[Vocabulary, list[str]]] = []
    names = ("llama-spm", "gpt2-llama-bpe", "gpt2-qwen2", "t5", "t5-bytes", "phi3", "gemma", "gemma3", "bert-cased")
    for name in names:
        fields = dict(bases[name].fields)
        fields["tokens"] = [*fields["tokens"], "<eos>", "<fim_pad>"]
        if "scores" in fields:
            fields["scores"] = [*fields["scores"], -2000.0, -2001.0]
        base = bases[name]._replace(fields=fields)
        count = len(fields["tokens"])
        kinds = ([1] * count, None)
        cases += [
            (_changed(base, {"token_type": kind})._replace(name=f"{name}:{kind is None}"), drawn) for kind in kinds
        ]
        cases.append((_changed(base, {"token_type": None, "bos_token_id": 3, "eos_token_id": 4}), drawn))
    return cases


def _switched(*flags: str) -> tuple[dict[str, Any], ...]:
    return tuple({flag: value} for flag in flags for value in (True, False, None))


def _changed(vocabulary: Vocabulary, change: dict[str, Any]) -> Vocabulary:
    fields = {key: value for key, value in {**vocabulary.fields, **change}.items() if value is not None}
    named = ",".join(f"{key}={value}" for key, value in change.items())
    return Vocabulary(f"{vocabulary.name}:{named}", vocabulary.architecture, fields)
