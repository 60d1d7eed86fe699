"""Directories of tokenizers, drawn: every file and field that says something about tokens, and texts for them.

``make_tokenizer_goldens.py`` has the answers of transformers' ``AutoTokenizer`` to them.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

MESSAGES: Final = [{"role": "user", "content": "hi there, the 12"}]

_WORDS: Final = ("hello", "there", "the", "tape", "is", "12", "user", "hi", "and", "don", "naive", "assistant")
_NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TOKENS: Final = (
    "<s>", "</s>", "<unk>", "<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<eos>", "<mask>",
    "[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]", "<image>", "<tool>", "the", "Hello", "extra",
)  # fmt: skip
_PIECES: Final = (
    "hello", "Hello", "there", "the", "THE", " ", "  ", "\n", "12", "345", "naïve", "É", "日本", "don't", " , ", " .",
    " n't", "a", "it 's", "🙂", "\t", "extra", "▁", "'S", "e\u0301",
)  # fmt: skip
_BYTE_CLASSES: Final = (
    "PreTrainedTokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast",
    "GPTNeoXTokenizerFast", "CohereTokenizerFast", "RobertaTokenizer", "BartTokenizerFast", "LlamaTokenizerFast",
    "CodeGenTokenizer", "Qwen3_5Tokenizer", "TokenizersBackend", "WhisperTokenizer", "StrangeTokenizer",
)  # fmt: skip
_PIECE_CLASSES: Final = (
    "PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast",
    "CodeLlamaTokenizer", "TokenizersBackend", "StrangeTokenizerFast",
)  # fmt: skip
_WORD_PIECE_CLASSES: Final = (
    "PreTrainedTokenizerFast", "BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "MPNetTokenizer",
    "ElectraTokenizerFast", "MPNetTokenizerFast",
)  # fmt: skip
_UNIGRAM_CLASSES: Final = ("PreTrainedTokenizerFast", "XLMRobertaTokenizer", "XLMRobertaTokenizerFast", "T5Tokenizer")
_MODEL_TYPES: Final = {
    "bytes": ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "granite", "mistral", "phi3", "olmo2", "roberta", "cohere",
              "starcoder2", "deepseek_v3", "qwen3_next", "smollm3", "modernbert", "phi"),
    "pieces": ("llama", "mistral", "gemma2", "gemma3_text", "phi3", "gemma", "deepseek_v3", "ernie4_5"),
    "words": ("bert", "mpnet", "nomic_bert", "modernbert"),
    "unigram": ("xlm-roberta", "t5", "llama"),
    "level": ("llama", "granite", "mistral", "deepseek_v3"),
}  # fmt: skip
_TEMPLATES: Final = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{{ m.content }} {{ eos_token }}{% endfor %}{{ pad_token }}|{{ image_token }}",
    "{% if bos_token is defined %}{{ bos_token }}{% endif %}[{{ messages[0].content }}]{{ unk_token }}{{ cls_token }}",
)


@dataclass(frozen=True, slots=True)
class DrawnDirectory:
    """A directory of a tokenizer.

    Attributes:
        seed: number it is drawn from.
        kind: kind of the tokenizer.
        files: text of each file by name.
        texts: texts to encode.
    """

    seed: int
    kind: str
    files: dict[str, str]
    texts: list[str]

    def write(self, directory: Path) -> None:
        """Writes the files."""
        for name, text in self.files.items():
            (directory / name).write_text(text, encoding="utf-8")


@dataclass(slots=True)
class _Draw:
    random: random.Random
    files: dict[str, str] = field(default_factory=dict)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, values: Any) -> Any:
        return self.random.choice(values)

    def some(self, values: Any, most: int) -> list[Any]:
        return self.random.sample(list(values), self.random.randint(0, min(most, len(values))))

    def flags(self, *, special: bool | None = None) -> dict[str, bool]:
        return {
            "lstrip": self.chance(0.2),
            "rstrip": self.chance(0.2),
            "normalized": self.chance(0.3),
            "single_word": self.chance(0.1),
            "special": self.chance(0.7) if special is None else special,
        }


def draw_directory(seed: int) -> DrawnDirectory:
    """Returns the directory of a seed."""
    draw = _Draw(random.Random(seed))
    kind = draw.one(("bytes", "bytes", "pieces", "pieces", "words", "unigram", "level"))
    tokenizer = {"bytes": _bytes, "pieces": _sentencepiece, "words": _word_piece, "unigram": _unigram, "level": _level}[
        kind
    ](draw)
    _added(draw, tokenizer)
    _post_processor(draw, tokenizer)
    model_type = draw.one(_MODEL_TYPES[kind])
    config = _config(draw, kind, tokenizer, model_type)
    listed = kind in ("bytes", "words") and draw.chance(0.12)
    if listed:
        config["tokenizer_class"] = draw.one(("GPT2Tokenizer", "Qwen2Tokenizer", "RobertaTokenizer"))
        model_type = "llama"
        if kind == "words":
            config["tokenizer_class"], model_type = draw.one(("BertTokenizer", "MPNetTokenizer")), "bert"
        _write_listed(draw, kind, tokenizer)
    else:
        if draw.chance(0.1):
            tokenizer.enable_padding(pad_token=draw.one(("<pad>", "[PAD]", "</s>")), pad_id=1)
        if draw.chance(0.1):
            tokenizer.enable_truncation(5)
        draw.files["tokenizer.json"] = tokenizer.to_str()
    model: dict[str, Any] = {"model_type": model_type}
    if draw.chance(0.05):
        model["model_type"] = "strange"
    if draw.chance(0.1) and "tokenizer_class" not in config:
        model["tokenizer_class"] = draw.one(_classes(kind)[:3])
    draw.files["config.json"] = json.dumps(model)
    if draw.chance(0.93):
        draw.files["tokenizer_config.json"] = json.dumps(config, ensure_ascii=False)
    _further_files(draw, tokenizer)
    texts = [
        "".join(draw.one((*_PIECES, *_TOKENS[:8], " ")) for _ in range(draw.random.randint(1, 7))) for _ in range(3)
    ]
    return DrawnDirectory(seed, kind, draw.files, ["Hello there, the <|im_start|> naïve it 's 12 !", *texts])


def draw_of_any_type(seed: int, classes: Mapping[str, str]) -> DrawnDirectory:
    """Returns the directory of a seed with any type of models, and with any class of tokenizers or none.

    Args:
        seed: number.
        classes: class of tokenizers for each type of models (``registered`` of tokenizer_classes.json).
    """
    drawn, draw = draw_directory(seed), _Draw(random.Random(f"types {seed}"))
    draw.files = {**drawn.files, "config.json": json.dumps({"model_type": draw.one(sorted(classes))})}
    name = "tokenizer_config.json"
    if name in draw.files:
        config = json.loads(draw.files[name])
        config.pop("tokenizer_class", None)
        if draw.chance(0.4):
            config["tokenizer_class"] = draw.one(sorted({*classes.values()})) + draw.one(("", "Fast"))
        draw.files[name] = json.dumps(config, ensure_ascii=False)
    return DrawnDirectory(seed, drawn.kind, draw.files, drawn.texts)


def _classes(kind: str) -> tuple[str, ...]:
    return {
        "bytes": _BYTE_CLASSES,
        "pieces": _PIECE_CLASSES,
        "words": _WORD_PIECE_CLASSES,
        "unigram": _UNIGRAM_CLASSES,
        "level": ("PreTrainedTokenizerFast", "TokenizersBackend", "StrangeTokenizer"),
    }[kind]


def _merged(vocabulary: dict[str, int], words: Any) -> list[tuple[str, str]]:
    """Adds words to a vocabulary, and returns the merges that make them."""
    merges: list[tuple[str, str]] = []
    for word in words:
        made = word[0]
        for letter in word[1:]:
            if made + letter not in vocabulary:
                vocabulary[made + letter] = len(vocabulary)
                merges.append((made, letter))
            made += letter
    return merges


def _bytes(draw: _Draw) -> Tokenizer:
    vocabulary: dict[str, int] = {}
    for token in draw.some(_TOKENS[:10], 5):
        vocabulary[token] = len(vocabulary)
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary.setdefault(letter, len(vocabulary))
    merges = _merged(vocabulary, [*_WORDS, "Ġthe", "Ġhi"])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=draw.chance(0.2)))
    prefix = draw.chance(0.2)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=draw.chance(0.7))
    steps = [[], [pre_tokenizers.Digits(individual_digits=True)],
             [pre_tokenizers.Split(Regex(r"\p{N}{1,3}|[^\p{N}]+"), behavior="isolated")]]  # fmt: skip
    before = draw.one(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, byte_level]) if before else byte_level
    tokenizer.normalizer = draw.one((None, normalizers.NFC(), normalizers.Lowercase()))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(draw: _Draw) -> Tokenizer:
    tokens = ["<unk>", "<s>", "</s>"] if draw.chance(0.7) else ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    vocabulary = {token: index for index, token in enumerate([*tokens, *(f"<0x{byte:02X}>" for byte in range(256))])}
    for letter in "▁abcdehilnoprstuvT12,日.'":
        vocabulary[letter] = len(vocabulary)
    merges = _merged(vocabulary, [*_WORDS[:7], "▁the", "▁hi", "▁▁"])
    model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=draw.chance(0.8), byte_fallback=draw.chance(0.9))
    tokenizer = Tokenizer(model)
    tail = []
    if draw.chance(0.5):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tail = [decoders.Strip(" ", 1, 0)]
    elif draw.chance(0.5):
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        scheme = draw.one(("always", "first", "never"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=draw.chance(0.3))
        tail = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *tail])
    return tokenizer


def _word_piece(draw: _Draw) -> Tokenizer:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if draw.chance(0.3):
        tokens = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    tokens += [
        "the",
        "The",
        "tape",
        "hello",
        "na",
        "##ive",
        "##ïve",
        "hi",
        "##12",
        "12",
        ",",
        "'",
        "s",
        "don",
        "t",
        ".",
    ]
    tokens += ["日", "本", "e", "é", "is", "there", "extra", "!", "it", "n", "i", "a"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=draw.chance(0.5), strip_accents=draw.one((None, True, False)), handle_chinese_chars=draw.chance(0.7)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=draw.chance(0.5))
    return tokenizer


def _unigram(draw: _Draw) -> Tokenizer:
    first = draw.one((["<s>", "<pad>", "</s>", "<unk>"], ["<pad>", "</s>", "<unk>", "<s>"]))
    pieces = [(token, 0.0) for token in first] + [(piece, -float(3 + index)) for index, piece in enumerate(
        ["▁the", "▁", "the", "hello", "t", "h", "e", "▁hi", "▁12", "1", "2", "s", ",", ".", "▁is", "a", "n", "i", "日"]
    )]  # fmt: skip
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=first.index("<unk>"), byte_fallback=False))
    tokenizer.normalizer = draw.one((None, normalizers.NFKC(), normalizers.Lowercase()))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=draw.one(("always", "first", "never")))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _level(draw: _Draw) -> Tokenizer:
    tokens = ["<unk>", "<s>", "</s>", "the", "tape", "Hello", "12", "there", ",", "is", "hi", "hello"]
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = draw.one((pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit()))
    tokenizer.normalizer = draw.one((None, normalizers.Lowercase()))
    return tokenizer


def _added(draw: _Draw, tokenizer: Tokenizer) -> None:
    for token in draw.some(_TOKENS, 6):
        added = AddedToken(token, **draw.flags())
        if added.special:
            tokenizer.add_special_tokens([added])
        else:
            tokenizer.add_tokens([added])


def _post_processor(draw: _Draw, tokenizer: Tokenizer) -> None:
    ids = tokenizer.get_vocab(with_added_tokens=True)
    around = [token for token in ("<s>", "</s>", "[CLS]", "[SEP]", "<bos>", "<|endoftext|>") if token in ids]
    if around and draw.chance(0.5):
        first, last = draw.one(around), draw.one(around)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A" if draw.chance(0.5) else f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(token, ids[token]) for token in {first, last}],
        )


def _stated(draw: _Draw, token: str) -> Any:
    """Returns a token as a configuration has it: text, or an object."""
    if draw.chance(0.6):
        return token
    flags = draw.flags()
    del flags["special"]
    return {"__type": "AddedToken", "content": token, **flags}


def _config(draw: _Draw, kind: str, tokenizer: Tokenizer, model_type: str) -> dict[str, Any]:
    config: dict[str, Any] = {"model_max_length": 512}
    if draw.chance(0.75):
        config["tokenizer_class"] = draw.one(_classes(kind))
    elif draw.chance(0.2):
        config["tokenizer_class"] = None
    # With a class of their own transformers asks whether to run its code.
    if draw.chance(0.06) and not str(config.get("tokenizer_class")).startswith(("None", "Strange")):
        own = ["code.OwnTokenizer", None]
        config["auto_map"] = draw.one((own, {"AutoTokenizer": own}, {"AutoModel": "code.OwnModel"}))
    for name in _NAMES:
        if draw.chance(0.35):
            config[name] = None if draw.chance(0.12) else _stated(draw, draw.one(_TOKENS[:16]))
    booleans = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "legacy",
                "add_bos_token", "add_eos_token", "clean_up_tokenization_spaces", "split_special_tokens")  # fmt: skip
    for name in booleans:
        if draw.chance(0.1 if name == "split_special_tokens" else 0.3):
            config[name] = draw.chance(0.5)
    if draw.chance(0.25):
        config["additional_special_tokens"] = [_stated(draw, token) for token in draw.some(_TOKENS[4:17], 3)]
    if draw.chance(0.2):
        names = {"image_token": "<image>", "tool_token": "<tool>"}
        listed = [_stated(draw, token) for token in draw.some(_TOKENS[4:17], 3)]
        config["extra_special_tokens"] = draw.one((listed, names))
    if draw.chance(0.1):
        config["image_token"] = _stated(draw, "<image>")
    if draw.chance(0.45):
        config["added_tokens_decoder"] = _decoder(draw, tokenizer)
    if draw.chance(0.8):
        config["chat_template"] = draw.one(_TEMPLATES)
        if draw.chance(0.1):
            named = {"default": config["chat_template"], "rag": "{{ documents }}"}
            config["chat_template"] = [{"name": name, "template": text} for name, text in named.items()]
    return config


def _decoder(draw: _Draw, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns added_tokens_decoder: tokens of tokenizer.json, with other flags, and further ones."""
    entries: dict[str, Any] = {}
    for number, token in tokenizer.get_added_tokens_decoder().items():
        if draw.chance(0.8):
            entries[str(number)] = {"content": token.content, **draw.flags()}
    ids = tokenizer.get_vocab(with_added_tokens=True)
    following = max(ids.values()) + 1
    for token in draw.some(_TOKENS, 4):
        if token in ids:
            entries[str(ids[token])] = {"content": token, **draw.flags()}
        else:
            entries[str(following)] = {"content": token, **draw.flags()}
            following += 1
    shuffled = [*entries.items()]
    draw.random.shuffle(shuffled)
    return dict(shuffled)


def _further_files(draw: _Draw, tokenizer: Tokenizer) -> None:
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if draw.chance(0.45):
        stated: dict[str, Any] = {}
        for name in _NAMES:
            if draw.chance(0.4):
                token, flags = draw.one(_TOKENS[:16]), draw.flags()
                del flags["special"]
                stated[name] = token if draw.chance(0.5) else {"content": token, **flags}
        if draw.chance(0.3):
            stated["additional_special_tokens"] = draw.some(_TOKENS[4:17], 3)
        if draw.chance(0.15):
            names = {"image_token": "<image>", "tool_token": "<tool>"}
            stated["extra_special_tokens"] = draw.one((draw.some(_TOKENS[4:17], 3), names))
        if draw.chance(0.1):
            stated["video_token"] = draw.one(_TOKENS[14:18])
        draw.files["special_tokens_map.json"] = json.dumps(stated)
    if draw.chance(0.3):
        new = [token for token in draw.some(_TOKENS, 4) if token not in ids]
        following = max(ids.values()) + 1
        draw.files["added_tokens.json"] = json.dumps({token: following + index for index, token in enumerate(new)})
    if draw.chance(0.15):
        draw.files["chat_template.jinja"] = "file:" + draw.one(_TEMPLATES)


def _write_listed(draw: _Draw, kind: str, tokenizer: Tokenizer) -> None:
    """Writes the vocabulary without a tokenizer.json."""
    state = json.loads(tokenizer.to_str())["model"]
    if kind == "words":
        ordered = sorted(state["vocab"], key=state["vocab"].__getitem__)
        draw.files["vocab.txt"] = "".join(f"{token}\n" for token in ordered)
        return
    draw.files["vocab.json"] = json.dumps(state["vocab"], ensure_ascii=False)
    lines = [" ".join(pair) for pair in state["merges"]]
    draw.files["merges.txt"] = "#version: 0.2\n" + "".join(f"{line}\n" for line in lines)
