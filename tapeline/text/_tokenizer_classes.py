"""Tokenizer classes: settings of a class that override ``tokenizer.json``.

A directory names the class of its tokenizer (``tokenizer_class``), or the type of the model implies it. Most classes
take only the vocabulary, the merges and the post-processor from ``tokenizer.json``; they bring their own normalizer,
pre-tokenizer, decoder and special tokens. The truth for every class is ``AutoTokenizer`` of transformers 5.23
(``tests/goldens/tokenizers/make_assembly_goldens.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

PLAIN: Final = "TokenizersBackend"
"""Class that takes ``tokenizer.json`` as it is."""
CHARACTER_MAP: Final = "precompiled_charsmap"
"""Argument with SentencePiece's map of characters, from the normalizer of ``tokenizer.json``."""

_SPACE: Final = "▁"
_ENGLISH: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _LINES
_QWEN35: Final = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _LINES
_VOCABULARY_AND_MERGES: Final = ("vocab.json", "merges.txt")
_SENTINELS: Final = 100  # T5's <extra_id_N>
_MOST_SENTINELS: Final = 10_000

Arguments = dict[str, Any]
"""Fields of ``tokenizer_config.json`` and of the files beside it, with the defaults of the class."""
Named = Mapping[str, AddedToken | str]
"""Special tokens by name, such as ``bos_token``."""


def _unchanged(arguments: Arguments) -> None:
    """Leaves the arguments as they are."""


def _as_added(tokenizer: Tokenizer, tokens: Sequence[AddedToken | str]) -> None:
    """Leaves the named tokens as they are."""


def _kept(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    """Leaves the post-processor as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerClass:
    """Setup of a class.

    Attributes:
        model: kind of the model: BPE, WordPiece or Unigram.
        defaults: arguments that the files do not have.
        build: sets the model's options, the normalizer, the pre-tokenizer and the decoder.
        prepare: changes the arguments before they are used.
        finish: sets the post-processor when all tokens are added.
        unknown: index of the unknown token of a Unigram model.
        files: names of the files that replace a missing tokenizer.json; empty if none can.
        name_tokens: changes special tokens when all tokens are added.
    """

    model: str
    defaults: Mapping[str, Any]
    build: Callable[[Tokenizer, Arguments], None]
    prepare: Callable[[Arguments], None] = _unchanged
    finish: Callable[[Tokenizer, Arguments, Named], None] = _kept
    unknown: int = 0
    files: tuple[str, ...] = ()
    name_tokens: Callable[[Tokenizer, Sequence[AddedToken | str]], None] = _as_added


def set_begin_and_end(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    """Has the tokenizer put ``bos_token`` and ``eos_token`` around a text, if the arguments ask for it."""
    around: dict[str, tuple[str, int]] = {}
    for piece, flag, name in (("begin", "add_bos_token", "bos_token"), ("end", "add_eos_token", "eos_token")):
        token = named.get(name)
        if arguments.get(flag) and token is not None:
            around[piece] = str(token), _id(tokenizer, named, name)
    if not around and tokenizer.post_processor is None:
        return
    first, last = ([piece] if piece in around else [] for piece in ("begin", "end"))
    single = [*first, "$A:0", *last]
    second = [*(f"{piece}:1" for piece in first), "$B:1", *(f"{piece}:1" for piece in last)]
    _set_template(tokenizer, single, [*single, *second], around)


def _set_template(
    tokenizer: Tokenizer, single: list[str], pair: list[str], pieces: Mapping[str, tuple[str, int]]
) -> None:
    """Sets a template. Pieces have names of their own, because the library reads colons and dollars in a token."""
    stated: Any = [{"id": piece, "ids": [number], "tokens": [token]} for piece, (token, number) in pieces.items()]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=stated)


def _id(tokenizer: Tokenizer, named: Named, name: str, default: int | None = None) -> int:
    """Returns the id of a named token, or of the unknown token; ``default`` if the name is not a token."""
    if default is not None and named.get(name) is None:
        return default
    for token in (named.get(name), named.get("unk_token")):
        number = None if token is None else tokenizer.token_to_id(str(token))
        if number is not None:
            return number
    raise ValueError(f"{name} {named.get(name)} has no id")


def _bpe(tokenizer: Tokenizer, *, unknown: object = None, fuse: bool = False, fallback: bool = False) -> None:
    """Sets the options of a BPE model."""
    model: Any = tokenizer.model
    model.dropout = None
    model.unk_token = None if unknown is None else str(unknown)
    model.continuing_subword_prefix = None
    model.end_of_word_suffix = None
    model.fuse_unk = fuse
    model.byte_fallback = fallback
    model.ignore_merges = False


def _sentencepiece_decoder(*more: Any) -> Any:
    return decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *more])


def _llama(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _bpe(tokenizer, fuse=True, fallback=True)
    prefix = True if arguments["add_prefix_space"] is None else arguments["add_prefix_space"]
    scheme = "never" if not prefix else "always" if arguments["legacy"] else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme, split=False)
    tokenizer.decoder = _sentencepiece_decoder(*([decoders.Strip(" ", 1, 0)] if prefix else []))


def _code_llama(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _bpe(tokenizer, unknown=arguments["unk_token"], fuse=True, fallback=True)
    prefix = True if arguments["add_prefix_space"] is None else arguments["add_prefix_space"]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        _SPACE, prepend_scheme="first" if prefix else "never", split=False
    )
    tokenizer.decoder = _sentencepiece_decoder(decoders.Strip(" ", 1, 0))


_INFILLING: Final = MappingProxyType(
    {
        "prefix_token": "▁<PRE>",
        "middle_token": "▁<MID>",
        "suffix_token": "▁<SUF>",
        "eot_token": "▁<EOT>",
        "fill_token": "<FILL_ME>",
    }
)


def _special(*, with_flags: bool) -> Callable[[Tokenizer, Sequence[AddedToken | str]], None]:
    """Returns the function that makes named tokens special: with their flags (Cohere), or without others (Qwen2)."""

    def name_tokens(tokenizer: Tokenizer, tokens: Sequence[AddedToken | str]) -> None:
        tokenizer.add_special_tokens(
            [
                one if with_flags and isinstance(one, AddedToken) else AddedToken(str(one), special=True)
                for one in tokens
            ]
        )

    return name_tokens


def _add_infilling(arguments: Arguments) -> None:
    tokens = [arguments[name] for name in _INFILLING]
    more = [token for token in tokens if token is not None]
    arguments["additional_special_tokens"] = [*(arguments.get("additional_special_tokens") or []), *more]


def _gemma(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _bpe(tokenizer, unknown=str(arguments["unk_token"]), fuse=True, fallback=True)
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = _sentencepiece_decoder()


def _gpt2(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _bpe(tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(arguments["add_prefix_space"]))
    tokenizer.decoder = decoders.ByteLevel()


def _gpt_neox(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _gpt2(tokenizer, arguments)
    tokenizer.normalizer = normalizers.NFC()


def _cohere(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _gpt_neox(tokenizer, arguments)
    pieces = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pieces])


def _split(pattern: str) -> Callable[[Tokenizer, Arguments], None]:
    """Returns the builder of a byte-level BPE that splits texts by a pattern (Qwen)."""

    def build(tokenizer: Tokenizer, arguments: Arguments) -> None:
        _bpe(tokenizer)
        tokenizer.normalizer = normalizers.NFC()
        pieces = pre_tokenizers.ByteLevel(add_prefix_space=bool(arguments["add_prefix_space"]), use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False), pieces]
        )
        tokenizer.decoder = decoders.ByteLevel()

    return build


def _bert(tokenizer: Tokenizer, arguments: Arguments) -> None:
    model: Any = tokenizer.model
    model.unk_token = str(arguments["unk_token"])
    model.continuing_subword_prefix = "##"
    model.max_input_chars_per_word = 100
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=arguments["tokenize_chinese_chars"],
        strip_accents=arguments["strip_accents"],
        lowercase=arguments["do_lower_case"],
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")


def _finish_bert(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    neither = named.get("cls_token") is None and named.get("sep_token") is None  # then one id stands for both
    pieces = {
        "first": (str(named.get("cls_token")), _id(tokenizer, named, "cls_token", 3 if neither else 2)),
        "last": (str(named.get("sep_token")), _id(tokenizer, named, "sep_token", 3)),
    }
    single = ["first:0", "$A:0", "last:0"]
    _set_template(tokenizer, single, [*single, "$B:1", "last:1"], pieces)


def _always_lower(arguments: Arguments) -> None:
    arguments["do_lower_case"] = True  # DPR's classes take the field and do not pass it on


def _strip_masks(arguments: Arguments) -> None:
    """Makes tokens of MPNet's names, of which the mask takes the space before it."""
    for name in ("bos_token", "eos_token", "sep_token", "cls_token", "unk_token", "pad_token", "mask_token"):
        if isinstance(arguments[name], str):
            arguments[name] = AddedToken(arguments[name], lstrip=name == "mask_token", rstrip=False)


def _finish_mpnet(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    tokenizer.post_processor = processors.RobertaProcessing(
        (str(named.get("sep_token")), _id(tokenizer, named, "sep_token", 2)),
        (str(named.get("cls_token")), _id(tokenizer, named, "cls_token", 0)),
        trim_offsets=True,
        add_prefix_space=False,
    )


def _finish_roberta(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    tokenizer.post_processor = processors.RobertaProcessing(
        (str(arguments["sep_token"]), _id(tokenizer, named, "sep_token")),
        (str(arguments["cls_token"]), _id(tokenizer, named, "cls_token")),
        bool(arguments["trim_offsets"]),
        bool(arguments["add_prefix_space"]),
    )


def _words(tokenizer: Tokenizer, arguments: Arguments) -> None:
    """Builds SentencePiece's Unigram that splits texts at white space."""
    if arguments.get(CHARACTER_MAP) is not None:
        tokenizer.normalizer = normalizers.Precompiled(arguments[CHARACTER_MAP])
    scheme = "always" if arguments.get("add_prefix_space", True) else "never"
    spaces = pre_tokenizers.Metaspace(_SPACE, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)


def _t5(tokenizer: Tokenizer, arguments: Arguments) -> None:
    _words(tokenizer, {**arguments, "add_prefix_space": True})


def _finish_xlm_roberta(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    pieces = {
        piece: (str(arguments[name]), _id(tokenizer, named, name))
        for piece, name in (("first", "bos_token"), ("last", "eos_token"))
    }
    _set_template(tokenizer, ["first", "$A", "last"], ["first", "$A", "last", "last", "$B", "last"], pieces)


def _add_sentinels(arguments: Arguments) -> None:
    listed = [*(arguments.get("additional_special_tokens") or [])]
    if not any("<extra_id_" in str(token) for token in listed):
        if arguments["extra_ids"] not in range(_MOST_SENTINELS + 1):
            raise ValueError(f"extra_ids: expected 0 to {_MOST_SENTINELS}; found {arguments['extra_ids']!r:.40}")
        listed += [f"<extra_id_{number}>" for number in range(arguments["extra_ids"])]
    arguments["additional_special_tokens"] = listed


def _finish_t5(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    last = {"last": ("</s>", _id(tokenizer, named, "eos_token"))}
    _set_template(tokenizer, ["$A", "last"], ["$A", "last", "$B", "last"], last)


def _finish_whisper(tokenizer: Tokenizer, arguments: Arguments, named: Named) -> None:
    """Puts the tokens before a transcript; not for a language or a task, which the transcriber sets."""
    if arguments.get("language") is not None or arguments.get("task") is not None:
        return
    before = ["<|startoftranscript|>", *([] if arguments.get("predict_timestamps") else ["<|notimestamps|>"])]
    unknown = _id(tokenizer, named, "unk_token")
    pieces: dict[str, tuple[str, int]] = {}
    for index, token in enumerate(before):
        number = tokenizer.token_to_id(token)
        pieces[f"before{index}"] = token, unknown if number is None else number
    single = [*(f"{piece}:0" for piece in pieces), "$A:0"]
    end = {"last": (str(named["eos_token"]), _id(tokenizer, named, "eos_token"))}
    _set_template(tokenizer, [*single, "last:0"], [*single, "$B:1", "last:1"], {**pieces, **end})


def _tokens(**tokens: str | None) -> dict[str, Any]:
    return {f"{name}_token": token for name, token in tokens.items()}


_TEXT_END: Final = _tokens(unk="<|endoftext|>", bos="<|endoftext|>", eos="<|endoftext|>")
_ANGLED: Final = _tokens(bos="<s>", eos="</s>", sep="</s>", cls="<s>", unk="<unk>", pad="<pad>", mask="<mask>")
_BERTS: Final = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}

CLASSES: Final[Mapping[str, TokenizerClass]] = MappingProxyType(
    {
        "LlamaTokenizer": TokenizerClass(
            model="BPE",
            defaults={**_tokens(unk="<unk>", bos="<s>", eos="</s>"), "legacy": False, "add_prefix_space": None},
            build=_llama,
        ),
        "CodeLlamaTokenizer": TokenizerClass(
            model="BPE",
            defaults={
                **_tokens(unk="<unk>", bos="<s>", eos="</s>"),
                **_INFILLING,
                "add_prefix_space": True,
                "add_bos_token": True,
            },
            build=_code_llama,
            prepare=_add_infilling,
        ),
        "GemmaTokenizer": TokenizerClass(
            model="BPE",
            defaults=_tokens(unk="<unk>", bos="<bos>", eos="<eos>", pad="<pad>", mask="<mask>"),
            build=_gemma,
        ),
        "GPT2Tokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "pad_token": None, "add_prefix_space": False},
            build=_gpt2,
            files=_VOCABULARY_AND_MERGES,
        ),
        "CodeGenTokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "pad_token": None, "add_prefix_space": False},
            build=_gpt2,
            files=_VOCABULARY_AND_MERGES,
        ),
        "WhisperTokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "add_prefix_space": False},
            build=_gpt2,
            finish=_finish_whisper,
            files=_VOCABULARY_AND_MERGES,
        ),
        "GPTNeoXTokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "pad_token": "<|padding|>", "add_prefix_space": False},
            build=_gpt_neox,
            finish=set_begin_and_end,
            files=_VOCABULARY_AND_MERGES,
        ),
        "CohereTokenizer": TokenizerClass(
            model="BPE",
            defaults={
                **_tokens(unk="<UNK>", bos="<BOS_TOKEN>", eos="<|END_OF_TURN_TOKEN|>", pad="<PAD>", cls="<CLS>"),
                **_tokens(sep="<SEP>", mask="<MASK_TOKEN>"),
                "add_prefix_space": False,
            },
            build=_cohere,
            files=_VOCABULARY_AND_MERGES,
            name_tokens=_special(with_flags=True),
        ),
        "Qwen2Tokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "bos_token": None, "pad_token": "<|endoftext|>", "add_prefix_space": None},
            build=_split(_QWEN2),
            files=_VOCABULARY_AND_MERGES,
            name_tokens=_special(with_flags=False),
        ),
        "Qwen3_5Tokenizer": TokenizerClass(
            model="BPE",
            defaults={**_TEXT_END, "bos_token": None, "pad_token": "<|endoftext|>", "add_prefix_space": None},
            build=_split(_QWEN35),
        ),
        "BertTokenizer": TokenizerClass(
            model="WordPiece",
            defaults={**_tokens(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]"), **_BERTS},
            build=_bert,
            finish=_finish_bert,
            files=("vocab.txt",),
        ),
        "DPRQuestionEncoderTokenizer": TokenizerClass(
            model="WordPiece",
            defaults={**_tokens(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]"), **_BERTS},
            build=_bert,
            prepare=_always_lower,
            finish=_finish_bert,
            files=("vocab.txt",),
        ),
        "MPNetTokenizer": TokenizerClass(
            model="WordPiece",
            defaults={**_ANGLED, "unk_token": "[UNK]", **_BERTS},
            build=_bert,
            prepare=_strip_masks,
            finish=_finish_mpnet,
            files=("vocab.txt",),
        ),
        "RobertaTokenizer": TokenizerClass(
            model="BPE",
            defaults={**_ANGLED, "add_prefix_space": False, "trim_offsets": True},
            build=_gpt2,
            finish=_finish_roberta,
            files=_VOCABULARY_AND_MERGES,
        ),
        "XLMRobertaTokenizer": TokenizerClass(
            model="Unigram",
            defaults={**_ANGLED, "add_prefix_space": True},
            build=_words,
            finish=_finish_xlm_roberta,
            unknown=3,
        ),
        "T5Tokenizer": TokenizerClass(
            model="Unigram",
            defaults={**_tokens(eos="</s>", unk="<unk>", pad="<pad>"), "extra_ids": _SENTINELS},
            build=_t5,
            prepare=_add_sentinels,
            finish=_finish_t5,
            unknown=2,
        ),
    }
)

_ALIASES: Final = {
    **dict.fromkeys(
        (
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "LayoutLMTokenizer",
            "LxmertTokenizer",
            "MobileBertTokenizer",
            "SqueezeBertTokenizer",
        ),
        "BertTokenizer",
    ),
    **dict.fromkeys(("DPRContextEncoderTokenizer", "DPRReaderTokenizer"), "DPRQuestionEncoderTokenizer"),
    **dict.fromkeys(("BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer"), "RobertaTokenizer"),
}
# Classes of transformers that set up what this module does not know.
_OTHERS: Final = frozenset(
    f"{name}Tokenizer"
    for name in (
        "Albert Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt BlenderbotSmall Blenderbot ByT5 "
        "CLIP CTRL Camembert Canine Clvp CpmAnt Cpm Deberta DebertaV2 Dia Esm Esmc FNet FSMT Flaubert Funnel "
        "GPTNeoXJapanese GPTSw3 Herbert Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Luke M2M100 MBart50 MBart MLuke Marian "
        "MarkupLM Mgpstr MyT5 Nllb Nougat OpenAIGPT PLBart Parakeet Pegasus Perceiver Phobert ProphetNet Rag Reformer "
        "RemBert RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter Tapas Tipsv2 Udop "
        "VideoPrism Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC XGLM XLM XLNet"
    ).split()
)
# Class that transformers 5.23 registers for each type of models (tests/goldens/data/tokenizer_classes.json).
_OF_MODELS: Final = {
    model_type: name
    for name, model_types in {
        "AlbertTokenizer": "albert yoso",
        "BartTokenizer": "florence2",
        "BarthezTokenizer": "barthez",
        "BartphoTokenizer": "bartpho",
        "BertGenerationTokenizer": "bert-generation",
        "BertJapaneseTokenizer": "bert-japanese",
        "BertTokenizer": (
            "align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino "
            "layoutlm megatron-bert mm-grounding-dino nezha nomic_bert qdqbert realm retribert squeezebert tvp vilt "
            "visual_bert"
        ),
        "BertweetTokenizer": "bertweet",
        "BigBirdTokenizer": "big_bird",
        "BioGptTokenizer": "biogpt",
        "BlenderbotSmallTokenizer": "blenderbot-small",
        "BlenderbotTokenizer": "blenderbot",
        "ByT5Tokenizer": "byt5",
        "CLIPTokenizer": "aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip",
        "CTRLTokenizer": "ctrl",
        "CamembertTokenizer": "camembert",
        "CanineTokenizer": "canine",
        "ClvpTokenizer": "clvp",
        "CodeLlamaTokenizer": "code_llama",
        "CohereTokenizer": "aya_vision cohere cohere2",
        "CpmAntTokenizer": "cpmant",
        "CpmTokenizer": "cpm",
        "DPRQuestionEncoderTokenizer": "dpr",
        "DebertaTokenizer": "deberta",
        "DebertaV2Tokenizer": "deberta-v2",
        "DiaTokenizer": "dia",
        "EsmTokenizer": "esm",
        "EsmcTokenizer": "esmc esmfold2",
        "FNetTokenizer": "fnet",
        "FSMTTokenizer": "fsmt",
        "FlaubertTokenizer": "flaubert",
        "FunnelTokenizer": "funnel",
        "GPT2Tokenizer": (
            "blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo jais2 "
            "opt phi starcoder2"
        ),
        "GPTNeoXJapaneseTokenizer": "gpt_neox_japanese",
        "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
        "GPTSw3Tokenizer": "gpt-sw3",
        "GemmaTokenizer": (
            "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 "
            "t5gemma zaya"
        ),
        "HerbertTokenizer": "herbert",
        "LEDTokenizer": "led",
        "LasrTokenizer": "lasr_ctc lasr_encoder",
        "LayoutLMv2Tokenizer": "layoutlmv2",
        "LayoutLMv3Tokenizer": "layoutlmv3",
        "LayoutXLMTokenizer": "layoutxlm",
        "LlamaTokenizer": "idefics idefics2",
        "LukeTokenizer": "luke",
        "LxmertTokenizer": "lxmert",
        "M2M100Tokenizer": "m2m_100",
        "MBart50Tokenizer": "mbart50",
        "MBartTokenizer": "mbart",
        "MLukeTokenizer": "mluke",
        "MPNetTokenizer": "mpnet",
        "MarianTokenizer": "marian",
        "MarkupLMTokenizer": "markuplm",
        "MgpstrTokenizer": "mgp-str",
        "MobileBertTokenizer": "mobilebert",
        "MvpTokenizer": "mvp",
        "MyT5Tokenizer": "myt5",
        "NllbTokenizer": "nllb nllb-moe",
        "NougatTokenizer": "nougat pp_formulanet",
        "OpenAIGPTTokenizer": "openai-gpt",
        "PLBartTokenizer": "plbart",
        "ParakeetTokenizer": (
            "granite_speech5_ctc nemotron3_5_asr nemotron_asr_streaming parakeet_ctc parakeet_rnnt parakeet_tdt"
        ),
        "PegasusTokenizer": "pegasus",
        "PerceiverTokenizer": "perceiver",
        "PhobertTokenizer": "phobert",
        "ProphetNetTokenizer": "prophetnet",
        "Qwen2Tokenizer": (
            "audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr "
            "moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl "
            "qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice"
        ),
        "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp",
        "RagTokenizer": "rag",
        "ReformerTokenizer": "reformer",
        "RemBertTokenizer": "rembert",
        "RoCBertTokenizer": "roc_bert",
        "RoFormerTokenizer": "roformer",
        "RobertaTokenizer": (
            "bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta roberta-prelayernorm"
        ),
        "SeamlessM4TTokenizer": "seamless_m4t seamless_m4t_v2",
        "Siglip2Tokenizer": "siglip2",
        "SiglipTokenizer": "siglip",
        "Speech2TextTokenizer": "speech_to_text",
        "SpeechT5Tokenizer": "speecht5",
        "SplinterTokenizer": "splinter",
        "T5Tokenizer": "mt5 musicgen musicgen_melody switch_transformers t5",
        "TapasTokenizer": "tapas",
        "Tipsv2Tokenizer": "tipsv2",
        PLAIN: (
            "EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5 "
            "ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 "
            "gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat "
            "hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava "
            "llava_next mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral "
            "ministral3 mistral mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 "
            "nemo_speechlm nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid opencua openvla paddleocr_vl "
            "pegasus_x persimmon phi3 phi3_v phimoe pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 "
            "vipllava voxtral voxtral_realtime xlm-roberta-xl"
        ),
        "UdopTokenizer": "udop",
        "VideoPrismTokenizer": "videoprism",
        "VitsTokenizer": "vits",
        "Wav2Vec2CTCTokenizer": (
            "data2vec-audio hubert unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer"
        ),
        "Wav2Vec2PhonemeCTCTokenizer": "wav2vec2_phoneme",
        "WhisperTokenizer": "whisper",
        "XGLMTokenizer": "xglm",
        "XLMRobertaTokenizer": "gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod",
        "XLMTokenizer": "xlm",
        "XLNetTokenizer": "xlnet",
    }.items()
    for model_type in model_types.split()
}
# Class of a type of models if no file names a class, if it is not the registered class.
_UNNAMED: Final = {
    "gpt-sw3": "GPT2Tokenizer",
    **dict.fromkeys(
        (
            "barthez bartpho bert-japanese bertweet byt5 code_llama cpm herbert mbart50 mega mluke myt5 nezha nllb "
            "phobert qdqbert realm retribert wav2vec2_phoneme"
        ).split(),
        PLAIN,
    ),
}
# Types of models whose repositories name the wrong class.
_WRONG: Final = frozenset(
    (
        "arctic camembertv2-base chatlm cohere_asr ernie4_5 ernie4_5_moe fuyu h2ovl_chat hyperclovax "
        "hyperclovax_vision_v2 hyperclovax_vlm internlm2 internlm3 iquestcoder jamba llava llava_next minicpm3 "
        "minicpmv minimax_m2 modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl "
        "phi3 phi3_v phimoe qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2 smolvlm step3_vl vipllava"
    ).split()
)


def class_of_model(model_type: object) -> str | None:
    """Returns the class that a type of models has, or None if the type has none of its own."""
    return _OF_MODELS.get(model_type) if isinstance(model_type, str) else None


def chosen_class(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any], serialized: str) -> tuple[str, str]:
    """Returns the name of the class in ``CLASSES`` or ``PLAIN``, and a note if it is not the class that is named.

    Args:
        config: the model's config.json.
        tokenizer_config: tokenizer_config.json.
        serialized: text of tokenizer.json; empty if there is none.
    """
    model_type = config.get("model_type")
    own_code = tokenizer_config.get("auto_map")
    if isinstance(own_code, Mapping):
        own_code = own_code.get("AutoTokenizer")
    stated = _name(tokenizer_config.get("tokenizer_class"))
    named = stated or _name(config.get("tokenizer_class"))
    registered = class_of_model(model_type)
    if named and not own_code:
        if named == "LlamaTokenizer" and model_type not in _WRONG and '"ByteLevel"' in serialized:
            return PLAIN, ""
        if registered not in (None, named):
            if registered == PLAIN:
                return PLAIN, ""
            return _known(registered if model_type in _WRONG else named)
    unnamed = _UNNAMED.get(model_type, registered) if isinstance(model_type, str) else None
    name, note = _known(named or unnamed or PLAIN)
    if own_code and name == PLAIN and not note:
        note = "the tokenizer has code of its own (auto_map), which is not run: tokenizer.json is used as it is"
    return name, note


def _name(value: object) -> str | None:
    return (
        value.removesuffix("Fast")
        if isinstance(value, str) and value != "PreTrainedTokenizerFast"
        else (PLAIN if isinstance(value, str) else None)
    )


def _known(name: str | None) -> tuple[str, str]:
    known = _ALIASES.get(name or PLAIN, name or PLAIN)
    if known in CLASSES:
        return known, ""
    note = f"tokenizer class {name} is not known here: tokenizer.json is used as it is" if known in _OTHERS else ""
    return PLAIN, note
