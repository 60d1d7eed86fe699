"""Directories whose vocabulary is a file of SentencePiece alone, drawn: how it is trained, and the files beside it.

``make_sentencepiece_goldens.py`` trains the models, and has the answers of transformers' ``AutoTokenizer`` and of
SentencePiece.
"""

# Letters of many scripts and widths are what is drawn.
# ruff: noqa: RUF001

import base64
import json
import random
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CORPUS: Final = (
    "the tape tells the whole story and the tape is here",
    "hello there, hi and hello user: the assistant is there",
    "don't do that, it's 12 or 345 of 6789; naive cafes",
    "a  double space and   three spaces, then (brackets) [and] {more}",
    "Über naïve Façade ﬁne ① ２ １２３ Ｔａｐｅ",
    "日本語のテキスト and русский текст",
    "the The THE tape Tape TAPE hello Hello",
)
MESSAGES: Final = [{"role": "user", "content": "hi there, the 12"}]
_SYMBOLS: Final = ("<|im_start|>", "<|im_end|>", "<image>", "tape", "  ", "<extra>", "12")
_CONTROL: Final = ("<ctrl>", "[INST]", "<mask>")
_TOKENS: Final = ("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<|im_end|>", "<mask>", "extra")
_PIECES: Final = (
    "hello", "Hello", "there", "the", "THE", " ", "  ", "   ", "\n", "12", "345", "naïve", "É", "日本", "don't", " , ",
    " .", "a", "ﬁne", "①", "Ｔape", "🙂", "\t", "extra", "▁", "tape", "<|im_start|>", "<image>", "<ctrl>", "[INST]",
    "<0x41>", "</s>", "<s>", "<unk>",
)  # fmt: skip
_TEMPLATES: Final = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages %}{{ m.content }} {{ eos_token }}{% endfor %}",
)
_CLASSES: Final = {
    "bpe": (
        ("LlamaTokenizer", "llama"), ("LlamaTokenizerFast", "llama"), ("LlamaTokenizer", "mistral"), (None, "llama"),
        ("GemmaTokenizer", "gemma"), ("GemmaTokenizerFast", "gemma2"), ("CodeLlamaTokenizer", "code_llama"),
        ("LlamaTokenizer", "phi3"), (None, "strange"), ("TokenizersBackend", "internlm2"), (None, "gemma3_text"),
    ),
    "unigram": (
        ("T5Tokenizer", "t5"), (None, "mt5"), ("XLMRobertaTokenizer", "xlm-roberta"), (None, "xlm-roberta"),
        ("LlamaTokenizer", "llama"), (None, "llama"), ("T5TokenizerFast", "t5"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawnPieces:
    """A directory of a tokenizer without a tokenizer.json.

    Attributes:
        seed: number it is drawn from.
        training: options of SentencePiece's trainer.
        name: name of the model's file.
        files: text of each other file by name.
        texts: texts to encode.
    """

    seed: int
    training: dict[str, Any]
    name: str
    files: dict[str, str]
    texts: list[str]

    def write(self, directory: Path, model: bytes) -> None:
        """Writes the files, with the model's bytes."""
        for name, text in self.files.items():
            (directory / name).write_text(text, encoding="utf-8")
        (directory / self.name).write_bytes(model)


def packed(model: bytes) -> str:
    """Returns a model's bytes as text."""
    return base64.b64encode(zlib.compress(model, 9)).decode()


def unpacked(text: str) -> bytes:
    """Returns the bytes of ``packed``."""
    return zlib.decompress(base64.b64decode(text))


def draw_pieces(seed: int, *, maps: bool = True) -> DrawnPieces:
    """Returns the directory of a seed.

    Args:
        seed: number.
        maps: False leaves out SentencePiece's own maps of characters, which have 240 kB.
    """
    draw = random.Random(seed)
    kind = draw.choice(("bpe", "bpe", "unigram"))
    named, model_type = draw.choice(_CLASSES[kind])
    training: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": draw.choice((90, 120, 150)),
        "byte_fallback": draw.random() < 0.5,
        "add_dummy_prefix": draw.random() < 0.7,
        "remove_extra_whitespaces": draw.random() < 0.4,
        "normalization_rule_name": draw.choice(
            ("identity", "identity", "nfkc", "nmt_nfkc_cf") if maps else ("identity",)
        ),
        "split_digits": draw.random() < 0.3,
        "split_by_whitespace": draw.random() < 0.8,
        "character_coverage": draw.choice((1.0, 0.98)),
        "user_defined_symbols": draw.sample(_SYMBOLS, draw.randint(0, 3)),
        "control_symbols": draw.sample(_CONTROL, draw.randint(0, 2)),
    }
    if training["byte_fallback"]:
        training["vocab_size"] += 256
    if "gemma" in str(model_type):
        training |= {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
        training["bos_piece"], training["eos_piece"] = draw.choice((("<bos>", "<eos>"), ("<s>", "</s>")))
    elif model_type in ("t5", "mt5"):
        training |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    elif draw.random() < 0.2:
        training["bos_id"] = -1
        training["eos_id"] = 1
    config: dict[str, Any] = {"model_max_length": 512}
    if named is not None:
        config["tokenizer_class"] = named
    for flag in ("add_bos_token", "add_eos_token", "legacy", "add_prefix_space", "clean_up_tokenization_spaces"):
        if draw.random() < 0.35:
            config[flag] = draw.random() < 0.6
    for token in ("bos_token", "eos_token", "unk_token", "pad_token"):
        if draw.random() < 0.35:
            config[token] = None if draw.random() < 0.1 else draw.choice(_TOKENS)
    if draw.random() < 0.2:
        config["additional_special_tokens"] = draw.sample(_TOKENS[3:], draw.randint(0, 2))
    if draw.random() < 0.2:
        config["extra_ids"] = draw.choice((0, 3))
    if draw.random() < 0.2:
        number = training["vocab_size"] + 3
        config["added_tokens_decoder"] = {
            "0": {"content": draw.choice(("<unk>", "<pad>", "<new>")), "special": True},
            str(number): {"content": "<more>", "special": draw.random() < 0.5},
        }
    if draw.random() < 0.7:
        config["chat_template"] = draw.choice(_TEMPLATES)
    files = {"config.json": json.dumps({"model_type": model_type})}
    if draw.random() < 0.9:
        files["tokenizer_config.json"] = json.dumps(config)
    if draw.random() < 0.2:
        files["special_tokens_map.json"] = json.dumps({"eos_token": "</s>", "pad_token": {"content": "<pad>"}})
    if draw.random() < 0.15:
        files["added_tokens.json"] = json.dumps({"<added>": training["vocab_size"]})
    names = {"t5": "spiece.model", "mt5": "spiece.model", "xlm-roberta": "sentencepiece.bpe.model"}
    name = names.get(model_type, "tokenizer.model") if draw.random() < 0.9 else "tokenizer.model"
    texts = ["".join(draw.choice((*_PIECES, " ")) for _ in range(draw.randint(1, 8))) for _ in range(5)]
    return DrawnPieces(seed, training, name, files, ["Hello there, the <|im_start|> naïve 12 !", " the tape", *texts])
