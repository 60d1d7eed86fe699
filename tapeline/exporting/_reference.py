"""Verification against another implementation of the model: transformers for directories, llama.cpp for GGUF files.

The checks of a bundle against the eager context cannot see that a file was read wrongly, because both read it the same
way. Here tokens of texts, conversations in the chat template, and logits of prompts in pieces are compared with the
reference's results from the same files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import Argument, DeviceError, EntryPoint, InputError, VerificationError, read_json
from tapeline.bundle import Bundle
from tapeline.cli import ProgressEvent
from tapeline.compare import agreement, precision_of
from tapeline.divergence import Arrays, DeviceSide, EagerSide, Side, example_inputs
from tapeline.exporting._load import Export, exact_weights, reference_entry_points
from tapeline.exporting._source import ModelSource
from tapeline.reference import (
    CONVERSATIONS,
    TEXTS,
    ReferenceAnswer,
    ReferenceRequest,
    TokenSequence,
    reference_python,
    run_reference,
)
from tapeline.runners import RopeLengths
from tapeline.text import ChatTemplate, Message, Tokenizer, find_tokenizer
from transformer_core import CONFIG_FILE

# Largest error of f32 results, relative to the largest reference value: docs/numerics.md.
_F32: Final = 2e-4
# llama.cpp tabulates activations in f16, and rounds what it multiplies with 16-bit and packed weights: largest NMSE.
_LLAMA_CPP_F32: Final = 1e-3
_LLAMA_CPP_ROUNDED: Final = 1e-2

_EAGER: Final = "eager"
_STEPS: Final = 4
_ENDS: Final = 3
_BATCH: Final = 2
_SHOWN: Final = 48

# Positions from which on a model computes otherwise.
_BOUNDARIES: Final = (
    "original_max_position_embeddings",
    "max_position_embeddings",
    "sliding_window",
    "attention_chunk_size",
)


def check_reference(
    export: Export, source: ModelSource, directory: Path, devices: Sequence[str]
) -> list[dict[str, Any]]:
    """Compares tokens and results with those of the reference.

    Args:
        export: the export.
        source: the model's files.
        directory: the bundle.
        devices: devices that run the bundle, beside the eager context.

    Returns:
        For the report: rows with figures, per tokens, conversations and sequence of tokens.

    Raises:
        InputError: the reference is missing or does not load the model, or there is nothing to compare.
        ProcessError: the reference's process died.
        VerificationError: tokens or results differ; names the first text or position, and the largest difference.
    """
    return _Check(export, source, directory, devices).rows()


class _Check:
    """Comparison of one export."""

    def __init__(self, export: Export, source: ModelSource, directory: Path, devices: Sequence[str]) -> None:
        assert export.weights is not None
        self._export: Final = export
        self._source: Final = source
        self._directory: Final = directory
        self._devices: Final = devices
        self._weights: Final = export.weights
        self._config: Final[Mapping[str, Any]] = read_json(
            source.directory / CONFIG_FILE, "give the model's directory", nonfinite=True
        )
        self._problems: Final[list[str]] = []
        self._name = "the reference"

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of the report."""
        python = reference_python(self._export.options.reference_python)
        tokenizer = find_tokenizer(self._directory)
        decodes = {"prefill", "decode"} <= set(self._export.model.ENTRY_POINTS)
        decodes = decodes and "encode" not in self._export.model.ENTRY_POINTS
        points = self._entry_points(decodes)
        sequences = self._sequences(points[0], tokenizer) if decodes else ()
        inputs = {} if decodes else self._inputs(points[0])
        results: Arrays = {} if decodes else self._results(points[0], inputs)
        request = ReferenceRequest(
            model=self._source.path,
            adapters=[(adapter.path, adapter.weight) for adapter in self._source.adapters],
            texts=TEXTS if tokenizer else (),
            conversations=CONVERSATIONS if tokenizer else (),
            sequences=sequences,
            capacity=self._export.sizes.capacity if decodes else 0,
            inputs=inputs,
            results=list(results),
            scores=not decodes and getattr(self._export.model.config, "score", None) is not None,
        )
        self._say(f"running the reference of {self._source.path.name} ...")
        answer = run_reference(request, python)
        self._name = answer.name
        rows = list(self._tokens(tokenizer, answer)) if tokenizer else []
        if tokenizer is None:
            rows.append({"device": "tokenizer", "skipped": "the model has no tokenizer"})
        rows += self._logits(points, sequences, answer) if decodes else self._forward(results, inputs, answer)
        if self._problems:
            raise VerificationError(f"verify=reference: {'; '.join(self._problems)}: the bundle was not written")
        return rows

    def _say(self, text: str) -> None:
        self._export.progress(ProgressEvent(text))

    # Tokens.

    def _tokens(self, tokenizer: Tokenizer, answer: ReferenceAnswer) -> Iterator[dict[str, Any]]:
        vocabulary = self._export.vocabulary or None
        encoded = [_outcome(tokenizer.encode, text, vocabulary) for text in TEXTS]
        yield self._compared_texts("texts", list(zip(TEXTS, encoded, answer.texts, strict=True)))
        rendered = [_outcome(self._rendered, tokenizer, messages) for messages in CONVERSATIONS]
        turns = [str(messages[-1]["content"]) for messages in CONVERSATIONS]
        yield self._compared_texts("conversations", list(zip(turns, rendered, answer.conversations, strict=True)))

    def _rendered(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> dict[str, Any]:
        text = ChatTemplate.find(self._directory).render(messages)
        return {"text": text, "ids": tokenizer.encode(text, self._export.vocabulary or None, special_tokens=False)}

    def _compared_texts(
        self, kind: str, pairs: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]
    ) -> dict[str, Any]:
        """Returns the row of texts or conversations; all of them, side by side."""
        listed, different = [], []
        for place, (text, ours, theirs) in enumerate(pairs, 1):
            difference = _difference(ours, theirs)
            listed.append({"text": text, "ours": dict(ours), "reference": dict(theirs), "equal": difference is None})
            if difference is not None:
                message = f"{kind[:-1]} {place} of {len(pairs)} ({text[:_SHOWN]!r}): {difference}"
                different.append(message)
                self._say(f"{self._name}: {message}")
        refused = sum("error" in ours and "error" in theirs for _, ours, theirs in pairs)
        beside = f" ({refused} refused by both)" if refused else ""
        self._say(f"{self._name}: {kind}: {len(pairs) - len(different)} of {len(pairs)} equal{beside}")
        if different:
            self._problems.append(
                f"tokens differ from {self._name} in {len(different)} of {len(pairs)} {kind}; first, {different[0]}"
            )
        exact = {"max_abs": 0.0, "max_rel": 0.0, "cosine": 1.0, "nmse": 0.0, "top1": 1.0}
        row = {"device": "tokenizer", "entry_point": kind, "result": "token_ids", "reference": self._name}
        return {**row, **exact, "nonfinite_match": True, "refused_by_both": refused, kind: listed}

    # Decoders.

    def _entry_points(self, decodes: bool) -> tuple[EntryPoint, ...]:
        export = self._export
        if not decodes:
            tokens = export.sizes.sequence
            return reference_entry_points(export, self._source, ("forward",), _BATCH, tokens, export.sizes.max_sequence)
        capacity = export.sizes.capacity
        tokens = min(export.sizes.sequence, max(1, (capacity - _STEPS) // 3))
        return reference_entry_points(export, self._source, ("prefill", "decode"), 1, tokens, capacity)

    def _sequences(self, prefill: EntryPoint, tokenizer: Tokenizer | None) -> tuple[TokenSequence, ...]:
        """Returns a prompt in pieces, and prompts and steps that cross the model's boundaries."""
        tokens, capacity = _tokens_of(prefill), self._export.sizes.capacity
        steps = max(0, min(_STEPS, capacity - tokens))
        lengths = [min(2 * tokens + tokens // 2 + 1, capacity - steps)]
        for boundary in sorted(_boundaries(self._config)):
            lengths += [boundary - 2, boundary + tokens // 2 + 1]
        fits = [
            n
            for n in dict.fromkeys(lengths)
            if n >= 1 and n + steps <= capacity and -(-n // tokens) * tokens <= capacity
        ]
        if not fits:
            fits = [min(tokens, capacity - steps)]
        ids = self._ids(tokenizer, max(fits) + steps)
        sequences = []
        for place, length in enumerate(fits):
            ends = list(range(tokens, length, tokens))[:_ENDS] if place == 0 else []
            sequences.append(TokenSequence(tuple(ids[: length + steps]), (*ends, length), steps))
        return tuple(sequences)

    def _ids(self, tokenizer: Tokenizer | None, count: int) -> list[int]:
        """Returns tokens of texts; of a model without a tokenizer, ordinary tokens."""
        vocabulary = self._export.vocabulary
        ids: list[int] = []
        if tokenizer is not None:
            try:
                ids = tokenizer.encode("\n".join(TEXTS[:16]), vocabulary, special_tokens=False)
            except InputError:
                ids = []  # reported by the comparison of tokens
        special = _special_ids(self._config)
        if len(set(ids)) < 8:
            ids = [int(one) for one in (np.arange(4 * vocabulary, dtype=np.int64) * 7919 + 11) % vocabulary]
        ids = [one for one in ids if one not in special] or [0]
        return (ids * (count // len(ids) + 1))[:count]

    def _logits(
        self, points: Sequence[EntryPoint], sequences: Sequence[TokenSequence], answer: ReferenceAnswer
    ) -> list[dict[str, Any]]:
        eager = EagerSide(points, exact_weights(self._weights), _EAGER)
        rows = self._compared_logits(_EAGER, eager, points, sequences, answer, strict=True)
        options = self._export.options
        strict = precision_of({"dtype": options.dtype, "quantize": options.quantize or "none"}) == "f32"
        for device in self._devices:
            bundle = Bundle(self._directory)
            described = {point.name: point for point in bundle.config.entry_points}
            if options.slots is not None or not {"prefill", "decode"} <= set(described):
                rows.append({"device": device, "skipped": f"no prefill and decode to compare with {self._name}"})
                continue
            signatures = [described[name] for name in ("prefill", "decode")]
            try:
                with bundle.session(device) as session:
                    side = DeviceSide(bundle, session)
                    rows += self._compared_logits(device, side, signatures, sequences, answer, strict=strict)
            except DeviceError as error:
                rows.append({"device": device, "skipped": str(error)})
        return rows

    def _compared_logits(
        self,
        device: str,
        side: Side,
        points: Sequence[EntryPoint | Signature],
        sequences: Sequence[TokenSequence],
        answer: ReferenceAnswer,
        *,
        strict: bool,
    ) -> list[dict[str, Any]]:
        rows = []
        tokens = _tokens_of(points[0])
        for sequence, expected in zip(sequences, answer.sequences, strict=True):
            length = sequence.ends[-1]
            if _padded(length + sequence.steps, tokens) > self._export.sizes.capacity and _by_length(points):
                rows.append({"device": device, "skipped": f"a sequence of {length} tokens cannot be run anew"})
                continue
            if _padded(length, tokens) > self._export.sizes.capacity:
                rows.append({"device": device, "skipped": f"a prompt of {length} tokens does not fit in its pieces"})
                continue
            lengths = RopeLengths(self._export.model.config.facts())
            logits = dict(_pieces(side, points, sequence, lengths))
            known = [(row, position) for row, position in enumerate(sequence.positions()) if position in logits]
            places = [position for _, position in known]
            ours, theirs = np.stack([logits[p] for p in places]), expected[[row for row, _ in known]]
            named = f"prompt of {length} tokens in pieces of {tokens}, {sequence.steps} steps"
            rows.append(self._row(device, "prefill,decode", "logits", ours, theirs, named, places, strict=strict))
        return rows

    # Other models.

    def _inputs(self, forward: EntryPoint) -> Arrays:
        """Returns inputs of one call, with padding as tokenizers write it."""
        specs = {argument.name: argument.spec for argument in forward.arguments}
        vocabulary = self._export.vocabulary
        inputs = example_inputs(specs, vocabulary, {})
        text = {**self._config, **self._config.get("text_config", {})}
        special, padding = _special_ids(self._config), text.get("pad_token_id")
        for name in ("token_ids", "decoder_token_ids"):
            if name in inputs:
                plain = [one for one in range(vocabulary) if one not in special] or [0]
                inputs[name] = np.array(plain, np.int32)[inputs.get(name, inputs["token_ids"]) % len(plain)]
        if "token_ids" in inputs and "attention_mask" in inputs and isinstance(padding, int):
            inputs["token_ids"] = np.where(inputs["attention_mask"] > 0, inputs["token_ids"], padding).astype(np.int32)
        if "token_type_ids" in inputs and self._source.path.is_file():
            inputs["token_type_ids"] = np.zeros_like(inputs["token_type_ids"])  # llama.cpp knows no others
        end = text.get("eos_token_id")
        if "pixel_values" in inputs and "token_ids" in inputs and isinstance(end, int):
            inputs["token_ids"][:, -1] = end
        return inputs

    def _results(self, forward: EntryPoint, inputs: Arrays) -> Arrays:
        return EagerSide([forward], exact_weights(self._weights), _EAGER).run(forward.name, inputs)

    def _forward(self, results: Arrays, inputs: Arrays, answer: ReferenceAnswer) -> list[dict[str, Any]]:
        rows = []
        for name, ours in results.items():
            theirs = answer.results.get(name)
            if theirs is None:
                continue
            mask = inputs.get("attention_mask")
            if theirs.shape != ours.shape and theirs.size == ours.size:
                theirs = theirs.reshape(ours.shape)
            if theirs.shape == ours.shape and mask is not None and ours.ndim == 3 and ours.shape[:2] == mask.shape:
                ours, theirs = ours[mask > 0], theirs[mask > 0]
            rows.append(
                self._row(_EAGER, "forward", name, ours, theirs, f"call of {_sizes(inputs)}", None, strict=True)
            )
        if not rows:
            raise InputError(
                f"verify=reference: {self._name} gives none of the results {', '.join(results)}: choose another "
                f"`verify`"
            )
        return rows

    def _row(
        self,
        device: str,
        entry_point: str,
        result: str,
        ours: np.ndarray,
        theirs: np.ndarray,
        named: str,
        positions: Sequence[int] | None,
        *,
        strict: bool,
    ) -> dict[str, Any]:
        """Returns the row of a comparison, and notes differences."""
        row: dict[str, Any] = {"device": device, "entry_point": entry_point, "result": result, "reference": self._name}
        if ours.shape != theirs.shape:
            self._problems.append(
                f"{result} of a {named} ({device}) are of shape {list(ours.shape)}, those of {self._name} of shape "
                f"{list(theirs.shape)}"
            )
            return {**row, "skipped": "shapes differ"}
        figures = agreement(ours, theirs)
        row |= {"inputs": named, **figures.as_json()}
        if positions is not None:
            row["positions"] = list(positions)
            row["max_rel_by_position"] = [agreement(a, b).max_rel for a, b in zip(ours, theirs, strict=True)]
        limit, measure = self._limit()
        row["limit"] = {measure: limit} if strict else None
        self._say(
            f"{self._name}: {result} of a {named} ({device}): max rel {figures.max_rel:.3g}, NMSE {figures.nmse:.3g}, "
            f"top-1 {figures.top1:.3g}"
        )
        if not strict or (figures.nonfinite_match and getattr(figures, measure) <= limit):
            return row
        first = ""
        if positions is not None:
            wrong = [
                p for p, a, b in zip(positions, ours, theirs, strict=True) if getattr(agreement(a, b), measure) > limit
            ]
            first = f", first at position {wrong[0]}" if wrong else ""
        self._problems.append(
            f"{result} of a {named} ({device}) differ from {self._name}{first}: largest error {figures.max_abs:.3g} "
            f"({figures.max_rel:.3g} of the largest value), NMSE {figures.nmse:.3g}, cosine {figures.cosine:.6f} "
            f"({measure} of {limit:.0e} is allowed)"
        )
        return row

    def _limit(self) -> tuple[float, str]:
        """Returns the largest difference that rounding explains, and of which figure."""
        if not self._source.path.is_file():
            return _F32, "max_rel"
        paths = [path for path, _ in self._export.model.named_parameters()]
        rounded = any(
            self._weights.encoding(path) is not None or self._weights.spec(path).dtype.name != "f32" for path in paths
        )
        return (_LLAMA_CPP_ROUNDED if rounded else _LLAMA_CPP_F32), "nmse"


def _outcome(make: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Returns ids, or text and ids, that are made; or the error."""
    try:
        made = make(*arguments)
    except InputError as error:
        return {"error": str(error)}
    return made if isinstance(made, dict) else {"ids": made}


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Returns the difference, or None."""
    if "error" in ours and "error" in theirs:
        return None
    if "error" in ours:
        return (
            None
            if theirs.get("ids") == []
            else f"refused ({ours['error']}); the reference gives {_cut(theirs['ids'], 0)}"
        )
    if "error" in theirs:
        return f"the reference refuses it ({theirs['error']}); ours are {_cut(ours['ids'], 0)}"
    if "text" in ours and ours["text"] != theirs["text"]:
        at = _first(ours["text"], theirs["text"])
        start = max(0, at - 16)
        mine, other = (side["text"][start : start + _SHOWN] for side in (ours, theirs))
        return f"rendered text differs at character {at}: ours has {mine!r}, the reference {other!r}"
    if list(ours["ids"]) == list(theirs["ids"]):
        return None
    at = _first(ours["ids"], theirs["ids"])
    return f"differs at token {at}: ours are {_cut(ours['ids'], at)}, the reference's {_cut(theirs['ids'], at)}"


def _first(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Returns the first place at which two sequences differ."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _cut(ids: Sequence[int], at: int) -> str:
    start = max(0, at - 2)
    shown = ", ".join(map(str, ids[start : start + 8]))
    return f"[{'.., ' if start else ''}{shown}{', ..' if len(ids) > start + 8 else ''}]"


def _tokens_of(prefill: EntryPoint | Signature) -> int:
    return next(argument for argument in prefill.arguments if argument.name == "token_ids").spec.shape[1]


def _by_length(points: Sequence[EntryPoint | Signature]) -> bool:
    """Returns whether RoPE depends on the length of the sequence."""
    return any(argument.name == "length" for argument in points[0].arguments)


def _padded(length: int, tokens: int) -> int:
    """Returns the number of positions that a prompt in pieces takes, with its padding."""
    return -(-length // tokens) * tokens


def _boundaries(config: Any) -> set[int]:
    """Returns the positions of a configuration from which on the model computes otherwise."""
    if isinstance(config, Mapping):
        here = {value for key, value in config.items() if key in _BOUNDARIES and isinstance(value, int) and value > 2}
        return here.union(*(_boundaries(value) for value in config.values()))
    return set()


def _special_ids(config: Any) -> set[int]:
    """Returns the ids of a configuration's tokens with a special meaning: padding, images, ends."""
    if not isinstance(config, Mapping):
        return set()
    ids: set[int] = set().union(*(_special_ids(value) for value in config.values()))
    for key, value in config.items():
        if key.endswith(("_token_id", "_token_index")):
            ids.update(one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int))
    return ids


def _sizes(inputs: Arrays) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())


def _pieces(
    side: Side, points: Sequence[EntryPoint | Signature], sequence: TokenSequence, lengths: RopeLengths
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields position and logits [V] of the last token of each call: the prompt in pieces, then single tokens.

    If RoPE depends on the length, pieces that end at a length with other frequencies are not compared, and a
    sequence that has outgrown its keys is run anew, as in generation.
    """
    prefill, decode = points
    tokens, length = _tokens_of(prefill), sequence.ends[-1]
    calls: list[tuple[EntryPoint | Signature, int, int, int, bool]] = []

    def prompt(total: int) -> None:
        lengths.begin(total)
        for begin in range(0, total, tokens):
            end = min(begin + tokens, total)
            same = lengths.regime_of(end) == lengths.regime_of(total)
            calls.append((prefill, begin, end - begin, total, same and (total == length or end == total)))

    prompt(length)
    for place in range(length, length + sequence.steps):
        if lengths.outgrown(place + 1):
            prompt(place + 1)
        else:
            calls.append((decode, place, 1, place + 1, True))
    state: Arrays = {}
    for point, begin, count, total, is_compared in calls:
        inputs = {
            argument.name: _input(argument, sequence.ids[begin : begin + count], begin, count, total, state)
            for argument in point.arguments
        }
        results = side.run(point.name, inputs)
        state = {argument.name: results[argument.name] for argument in point.arguments if argument.name in results}
        if is_compared:
            yield begin + count - 1, results["logits"][0].astype(np.float32)


def _input(
    argument: Argument | LoweredArgument, ids: Sequence[int], begin: int, count: int, total: int, state: Arrays
) -> np.ndarray:
    """Returns the value of an argument; all rows of a batch are the same sequence."""
    spec = argument.spec
    if argument.name == "token_ids":
        padded = [*ids, *[ids[-1]] * (spec.shape[1] - count)]
        return np.broadcast_to(np.array(padded, np.int32), spec.shape)
    places = {"position": begin, "last": count - 1, "length": total}
    if argument.name in places:
        return np.full(spec.shape, places[argument.name], np.int32)
    return state.get(argument.name, np.zeros(spec.shape, spec.dtype.numpy))
