"""Metadata of a GGUF file for a directory's tokenizer: ``gguf_tokenizer`` the other way round.

The fields that are written are read again, and must give the same ids for texts of many kinds, so that a tokenizer
that GGUF cannot hold is refused and never changed.
"""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import tokenizers

from lang_core import LARGE_JSON_BOUNDS, CheckpointError, TapelineError, json_value
from tapeline.text._assembly import TOKENIZER_CONFIG, AssembledTokenizer, assemble, read_object
from tapeline.text._gguf_bpe import UnreadTokenizerError, matching_splits
from tapeline.text._gguf_tokenizer import gguf_tokenizer
from tapeline.text._gguf_vocabulary import PREFIX, TokenType
from tapeline.text._sentencepiece_model import SentencePieceModel, read_sentencepiece

_SPACE: Final = "▁"
_INSIDE: Final = "##"
_TEMPLATE: Final = "tokenizer.chat_template"
_TEMPLATE_FILE: Final = "chat_template.jinja"
_BYTES: Final = {f"<0x{byte:02X}>" for byte in range(256)}
_UNUSED: Final = -10000.0
_IDS: Final = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # as the gguf package spells it
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
_FURTHER_ENDS: Final = ("eot_token_id", "eom_token_id")
SAMPLES: Final = (
    "Hello world! It's 12:34, isn't it? I'VE told you: we'll be there.",
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3",
    "🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天\uff5e",
    "------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? a\u0301 é ﬁ Ⅻ ½",
    "한국어 日本語テキスト العربية हिन्दी",
    "def f(x):\n    return x ** 2  # comment\n\tif a_b != c: print(f'{x}')\r\nhttps://a.b/c?d=e&f=%20",
    "  two spaces before, and after  ",
    "CamelCaseWord snake_case UPPER lower MiXeD x1y2z3",
    "",
)
"""Texts whose ids a tokenizer must keep."""


class _Vocabulary(NamedTuple):
    """Tokens by id.

    Attributes:
        tokens: texts.
        types: types.
        scores: scores; None without.
        fields: further fields.
    """

    tokens: list[str]
    types: list[int]
    scores: list[float] | None
    fields: dict[str, Any]


def gguf_tokenizer_fields(
    directory: Path, size: int, ends: tuple[int, ...], architecture: str, name: str
) -> dict[str, Any]:
    """Returns the metadata of a directory's tokenizer and chat template; nothing if it has no tokenizer.

    Args:
        directory: directory with the tokenizer's files.
        size: number of tokens of the model; ids above those of the tokenizer become unused tokens.
        ends: ids that end a sequence, the tokenizer's own first.
        architecture: llama.cpp's name of the model's architecture, which some rules follow.
        name: name of the model.

    Raises:
        UnreadTokenizerError: GGUF has no such tokenizer, or llama.cpp would give other ids.
        CheckpointError: a file is damaged.
    """
    assembled = assemble(directory)
    if assembled is None:
        return _named_ids({}, ends)
    fields = _fields(directory, assembled, size)
    config = read_object(directory / TOKENIZER_CONFIG)
    fields |= _special(assembled, ends)
    fields |= _around(assembled)
    whole = {f"{PREFIX}{key}": value for key, value in fields.items()}
    _check(whole, assembled, architecture, name)
    return whole | _templates(directory, config)


def _fields(directory: Path, assembled: AssembledTokenizer, size: int) -> dict[str, Any]:
    """Returns the fields of the vocabulary and its rules."""
    state: dict[str, Any] = json_value(assembled.inner.to_str(), LARGE_JSON_BOUNDS)
    kind = state["model"]["type"]
    steps = _steps(state)
    if kind == "BPE" and "ByteLevel" in steps:
        vocabulary = _byte_level(state, assembled)
    elif kind == "BPE":
        vocabulary = _merged(state, assembled, directory)
    elif kind == "Unigram":
        vocabulary = _unigram(state, assembled)
    elif kind == "WordPiece":
        vocabulary = _word_piece(state, assembled)
    else:
        raise _refused(assembled, f"a {kind} model, which GGUF files do not hold")
    tokens, types, scores, fields = vocabulary
    for index in range(len(tokens), size):
        tokens.append(f"[PAD{index}]")
        types.append(TokenType.UNUSED.value)
        if scores is not None:
            scores.append(_UNUSED)
    return {
        **fields,
        "tokens": tokens,
        "token_type": types,
        **({} if scores is None else {"scores": scores}),
    }


def _steps(state: Mapping[str, Any]) -> set[str]:
    """Returns the types of the steps before and after the model."""
    types: set[str] = set()
    for name in ("pre_tokenizer", "decoder", "normalizer"):
        step = state.get(name) or {}
        inner = step.get("pretokenizers") or step.get("decoders") or step.get("normalizers") or []
        types |= {part["type"] for part in [step, *inner] if "type" in part}
    return types


def _listed(assembled: AssembledTokenizer, plain: Callable[[str], TokenType]) -> tuple[list[str], list[int]]:
    """Returns tokens and types by id; ``plain`` gives the type of a token that is not added."""
    inner = assembled.inner
    added = inner.get_added_tokens_decoder()
    by_id = {index: token for token, index in inner.get_vocab(with_added_tokens=True).items()}
    tokens: list[str] = []
    types: list[int] = []
    for index in range(max(by_id, default=-1) + 1):
        token = by_id.get(index)
        if index in added:
            token = added[index].content
            kind = TokenType.CONTROL if added[index].special else TokenType.USER_DEFINED
        elif token is None:
            token, kind = f"[PAD{index}]", TokenType.UNUSED
        else:
            kind = plain(token)
        tokens.append(token)
        types.append(kind.value)
    return tokens, types


def _byte_level(state: Mapping[str, Any], assembled: AssembledTokenizer) -> _Vocabulary:
    tokens, types = _listed(assembled, lambda token: TokenType.NORMAL)
    names = matching_splits(assembled.inner, SAMPLES)
    if not names:
        raise _refused(assembled, "a splitting of texts that llama.cpp has no name for (tokenizer.ggml.pre)")
    return _Vocabulary(tokens, types, None, {"model": "gpt2", "pre": names[0], "merges": _merges(state)})


def _merges(state: Mapping[str, Any]) -> list[str]:
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]]


def _merged(state: Mapping[str, Any], assembled: AssembledTokenizer, directory: Path) -> _Vocabulary:
    """Returns SentencePiece's BPE, with the scores of its file; if there is none, in the order of ids."""
    unknown = state["model"].get("unk_token")

    def plain(token: str) -> TokenType:
        if token == unknown:
            return TokenType.UNKNOWN
        return TokenType.BYTE if token in _BYTES else TokenType.NORMAL

    tokens, types = _listed(assembled, plain)
    types = [TokenType.UNKNOWN.value if token == unknown else kind for token, kind in zip(tokens, types, strict=True)]
    stated = _sentencepiece(directory)
    scores = _scores(tokens, types) if stated is None else _stored_scores(stated, tokens)
    prefix = any(step.get("type") == "Prepend" for step in _normalizers(state)) or _prepends(state)
    return _Vocabulary(tokens, types, scores, {"model": "llama", "add_space_prefix": prefix})


def _normalizers(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    step = state.get("normalizer") or {}
    return [step, *(step.get("normalizers") or [])]


def _prepends(state: Mapping[str, Any]) -> bool:
    """Returns whether a step before the model puts a space before texts."""
    step = state.get("pre_tokenizer") or {}
    parts = [step, *(step.get("pretokenizers") or [])]
    return any(part.get("type") == "Metaspace" and part.get("prepend_scheme") != "never" for part in parts)


def _sentencepiece(directory: Path) -> SentencePieceModel | None:
    path = directory / "tokenizer.model"
    try:
        return read_sentencepiece(path) if path.is_file() else None
    except CheckpointError:
        return None  # a file of another kind (tiktoken) has this name, too


def _scores(tokens: list[str], types: list[int]) -> list[float]:
    """Returns scores in the order of ids; 0 for tokens that are not merged."""
    merged = (TokenType.NORMAL.value, TokenType.USER_DEFINED.value)
    return [-float(index) if kind in merged else 0.0 for index, kind in enumerate(types)]


def _stored_scores(model: SentencePieceModel, tokens: list[str]) -> list[float]:
    stored = [piece.score for piece in model.pieces[: len(tokens)]]
    return stored + [-1000.0] * (len(tokens) - len(stored))


def _unigram(state: Mapping[str, Any], assembled: AssembledTokenizer) -> _Vocabulary:
    unknown = state["model"].get("unk_id")
    entries = state["model"]["vocab"]
    tokens, types = _listed(assembled, lambda token: TokenType.BYTE if token in _BYTES else TokenType.NORMAL)
    if unknown is not None:
        types[unknown] = TokenType.UNKNOWN.value
    scores = [float(score) for _, score in entries[: len(tokens)]]
    scores += [0.0] * (len(tokens) - len(scores))
    fields: dict[str, Any] = {"model": "t5", "add_space_prefix": True, "remove_extra_whitespaces": False}
    for step in _normalizers(state):
        if step.get("type") == "Precompiled" and step.get("precompiled_charsmap"):
            fields["precompiled_charsmap"] = [*base64.b64decode(step["precompiled_charsmap"])]
            fields["remove_extra_whitespaces"] = True
    return _Vocabulary(tokens, types, scores, fields)


def _word_piece(state: Mapping[str, Any], assembled: AssembledTokenizer) -> _Vocabulary:
    """Returns WordPiece, with pieces as llama.cpp has them: a mark before those that begin words."""
    tokens, types = _listed(assembled, lambda token: TokenType.NORMAL)
    special = {*assembled.tokens.values(), state["model"]["unk_token"]}
    for index, token in enumerate(tokens):
        if token in special:
            types[index] = TokenType.CONTROL.value
        elif types[index] == TokenType.NORMAL.value and not (token.startswith("[") and token.endswith("]")):
            tokens[index] = token.removeprefix(_INSIDE) if token.startswith(_INSIDE) else _SPACE + token
    normalizer = state.get("normalizer") or {}
    lower = bool(normalizer.get("lowercase"))
    accents = normalizer.get("strip_accents")
    return _Vocabulary(
        tokens,
        types,
        None,
        {
            "model": "bert",
            "pre": "jina-v2-en" if lower else "default",
            "normalizer.lowercase": lower,
            "normalizer.strip_accents": lower if accents is None else bool(accents),
        },
    )


def _special(assembled: AssembledTokenizer, ends: tuple[int, ...]) -> dict[str, Any]:
    ids = {
        field: assembled.inner.token_to_id(assembled.tokens[name])
        for name, field in _IDS.items()
        if name in assembled.tokens
    }
    named = {field: number for field, number in ids.items() if number is not None}
    return {key.removeprefix(PREFIX): value for key, value in _named_ids(named, ends).items()}


def _named_ids(named: Mapping[str, int], ends: tuple[int, ...]) -> dict[str, Any]:
    """Returns the fields of special ids; of several that end a sequence, up to three."""
    fields: dict[str, Any] = {f"{PREFIX}{field}": number for field, number in named.items()}
    further = [number for number in dict.fromkeys(ends) if number != named.get("eos_token_id")]
    if "eos_token_id" not in named and further:
        fields[f"{PREFIX}eos_token_id"] = further.pop(0)
    return fields | {f"{PREFIX}{field}": number for field, number in zip(_FURTHER_ENDS, further, strict=False)}


def _around(assembled: AssembledTokenizer) -> dict[str, Any]:
    """Returns which tokens are put before and after texts."""
    inner, text = assembled.inner, "a"
    plain = inner.encode(text, add_special_tokens=False).ids
    whole = inner.encode(text).ids
    first = inner.token_to_id(assembled.tokens.get("bos_token", assembled.tokens.get("cls_token", "")))
    last = inner.token_to_id(assembled.tokens.get("eos_token", assembled.tokens.get("sep_token", "")))
    begins = len(whole) > len(plain) and first is not None and whole[0] == first
    finishes = len(whole) > len(plain) and last is not None and whole[-1] == last
    return {"add_bos_token": begins, "add_eos_token": finishes}


def _templates(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the chat templates: of their own file, or of tokenizer_config.json."""
    file = directory / _TEMPLATE_FILE
    stated = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(stated, str):
        return {_TEMPLATE: stated}
    listed = {str(entry["name"]): str(entry["template"]) for entry in stated or []}
    fields: dict[str, Any] = {}
    if "default" in listed:
        fields[_TEMPLATE] = listed.pop("default")
    if listed:
        fields["tokenizer.chat_templates"] = [*listed]
        fields |= {f"{_TEMPLATE}.{name}": template for name, template in listed.items()}
    return fields


def _check(fields: Mapping[str, Any], assembled: AssembledTokenizer, architecture: str, name: str) -> None:
    """Checks that the fields make the tokenizer again.

    Raises:
        UnreadTokenizerError: they give other ids for a text.
    """
    stated = {**fields, "general.architecture": architecture, "general.name": name}
    try:
        made = gguf_tokenizer(stated, f"{assembled.path} as GGUF")
    except TapelineError as error:
        raise _refused(assembled, f"a tokenizer that cannot be read back ({error})") from error
    assert made is not None
    again: tokenizers.Tokenizer = made[0]
    texts = [*SAMPLES, *(f"a {token} b" for token in assembled.tokens.values())]
    for text in texts:
        for around in (False, True):
            expected = assembled.inner.encode(text, add_special_tokens=around).ids
            actual = again.encode(text, add_special_tokens=around).ids
            if actual != expected:
                raise _refused(
                    assembled,
                    f"rules that GGUF does not state: for {text!r:.60} ids {_short(expected)} become {_short(actual)}",
                )


def _short(ids: list[int]) -> str:
    return f"{ids[:12]}{' ..' if len(ids) > 12 else ''}"


def _refused(assembled: AssembledTokenizer, reason: str) -> UnreadTokenizerError:
    return UnreadTokenizerError(
        f"{assembled.path}: the tokenizer has {reason}: give tokenizer=false to write the weights without it, and take "
        "the tokenizer from the directory"
    )
