"""A bundle's prefill, decode and score on a device, as models for generation."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from compile_hlo.directions import Signature
from generation import Prediction
from generation.engine import SequenceModel
from lang_core import InputError, near_names
from runtime import Session, Tensor
from tapeline.bundle import Bundle
from tapeline.runners._pictures import ImageEncoder, takes_pictures
from tapeline.runners._predictions import LOGITS, Rows, Single
from tapeline.runners._rope_lengths import RopeLengths
from tapeline.runners._slot_rows import WholeRows, position_axes
from transformer_core import DRAFT, NEXT_IDS, PREFILL_EMBEDDINGS

ENCODE: Final = "encode"
"""Entry point of a model with a decoder that attends to an encoder's states (Whisper)."""
Given = Sequence[np.ndarray | int]

_TOKENS: Final = "token_ids"
_LENGTH: Final = "length"
_VERIFY: Final = "verify"
_SCALARS: Final = ("position", "last", _LENGTH)


def ordered_inputs(entry_point: Signature, inputs: Mapping[str, np.ndarray | int]) -> list[np.ndarray | int]:
    """Returns an entry point's arguments in its order: arrays of the shapes of their specs.

    Args:
        entry_point: signature of the entry point.
        inputs: arguments by name, of the shapes of their specs.

    Raises:
        InputError: a name is unknown, or an argument is missing.
    """
    known = [argument.name for argument in entry_point.arguments]
    for name in inputs:
        if name not in known:
            raise InputError(f"{entry_point.name!r} has no argument {name!r}{near_names(name, known)}")
    missing = [name for name in known if name not in inputs]
    if missing:
        raise InputError(f"entry point {entry_point.name!r}: `input` is missing for {', '.join(missing)}")
    return [inputs[name] for name in known]


def encoder_arguments(bundle: Bundle, inputs: Mapping[str, np.ndarray | int] | None) -> Given:
    """Returns the arguments of a bundle's encoder in its order; none for a bundle without an encoder.

    Args:
        bundle: the bundle.
        inputs: arguments by name, of the shapes of their specs; None for none.

    Raises:
        InputError: they do not fit the encoder, or the encoder is missing.
    """
    names = [entry_point.name for entry_point in bundle.config.entry_points]
    return ordered_inputs(bundle.entry_point(ENCODE), inputs or {}) if ENCODE in names or inputs else ()


def encoded(bundle: Bundle, session: Session, given: Given) -> tuple[Tensor, ...]:
    """Runs the encoder and returns its results that prefill and decode take, of the shapes of their specs.

    None in a bundle of a decoder alone.

    Args:
        bundle: the bundle.
        session: the bundle's.
        given: the encoder's arguments in its order, of the shapes of their specs.

    Raises:
        InputError: the bundle lacks an encoder, and they need its results.
    """
    prefill = bundle.entry_point("prefill")
    wanted = [
        argument.name
        for argument in prefill.arguments
        if not argument.donated and argument.name not in (_TOKENS, *_SCALARS)
    ]
    if not wanted:
        return ()
    if ENCODE not in [point.name for point in bundle.config.entry_points]:
        raise InputError(
            f"{bundle.path}: prefill takes {wanted[0]!r}, which {ENCODE} gives, and there is no {ENCODE}: export with "
            f"entry_points={ENCODE},prefill,decode"
        )
    results = [result.name for result in bundle.entry_point(ENCODE).results]
    made = dict(zip(results, session.function(ENCODE)(*given), strict=True))
    return tuple(made[name] for name in wanted)


class _Called:
    """An entry point that takes tokens.

    Attributes:
        updating: prepared call.
        rows: number of predictions per call.
        next_ids: index of the result with the likeliest tokens; None in older bundles.
        token_bytes: bytes of token ids and positions per call.
        takes_length: True if it takes the lengths of the sequences.
    """

    def __init__(self, bundle: Bundle, session: Session, name: str) -> None:
        point = bundle.entry_point(name)
        self.updating: Final = session.updating(name, LOGITS + 1)
        self.rows: Final = math.prod(point.results[LOGITS].spec.shape[:-1])
        self.next_ids: Final = len(point.results) - 1 if point.results[-1].name == NEXT_IDS else None
        said = [
            argument
            for argument in point.arguments
            if argument.name in (_TOKENS, *_SCALARS) and argument.kind == "tensor"
        ]
        self.token_bytes: Final = sum(argument.spec.nbytes for argument in said)
        self.takes_length: Final = any(argument.name == _LENGTH for argument in point.arguments)


class BundleModel(SequenceModel):
    """A bundle for one sequence. Its caches lie on the device and are passed from call to call, donated.

    Attributes:
        batch: 1.
        chunk: tokens per call of prefill.
        capacity: positions in the caches.
        recurrent: True if some layer has a state in place of a cache.
        vocabulary: V.
        cache_specs: specs of the caches and states, by name.
        caches: caches and states.
        token_bytes: bytes of token ids and positions that were moved so far, in and out.
        head_calls: calls of the multi-token prediction head so far.
    """

    def __init__(self, bundle: Bundle, session: Session, given: Given | None = ()) -> None:
        """Makes empty caches; runs the encoder, if there is one and its arguments are given.

        Args:
            bundle: the bundle.
            session: on a device.
            given: the arguments of its encoder, from ``encoder_inputs``; None to run it later.

        Raises:
            InputError: the bundle lacks prefill or decode, or is for several sequences at once.
        """
        points = {point.name: point for point in bundle.config.entry_points}
        if not {"prefill", "decode"} <= set(points):
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(points)}; generation needs prefill and decode: export "
                f"with entry_points=prefill,decode"
            )
        prefill = points["prefill"]
        self.batch, self.chunk = prefill.arguments[0].spec.shape
        if self.batch != 1 or any(
            argument.name == "position" and argument.kind == "tensor" for argument in prefill.arguments
        ):
            raise InputError(
                f"{bundle.path} was exported with batch={self.batch}, and generation takes one sequence, or several "
                f"from a bundle with slots: export without batch, or with slots={self.batch}"
            )
        specs = {argument.name: argument.spec for argument in prefill.arguments if argument.donated}
        self.capacity = bundle.config.model["max_sequence"]
        self.recurrent = any(name.endswith("_state") for name in specs)
        self.vocabulary = prefill.results[0].spec.shape[-1]
        self.cache_specs = specs
        self.token_bytes = 0
        self.head_calls = 0
        self._bundle: Final = bundle
        self._session: Final = session
        self._lengths: Final = RopeLengths(bundle.config.model)
        self._prefill: Final = _Called(bundle, session, "prefill")
        self._decode: Final = _Called(bundle, session, "decode")
        self.caches: Final = session.hold([session.zeros(spec) for spec in specs.values()])
        self._seen = () if given is None else encoded(bundle, session, given)
        self.image_token = bundle.config.model["image_token"] if takes_pictures(bundle) else None
        self.verify_tokens = bundle.entry_point(_VERIFY).arguments[0].spec.shape[1] if bundle.known_name(_VERIFY) else 0
        self.position_axes = position_axes(specs, self.capacity)
        self.position_bytes = sum(
            spec.nbytes // self.capacity
            for spec, axis in zip(specs.values(), self.position_axes, strict=True)
            if axis is not None
        )
        self._rows: Final = WholeRows(self.caches, self.position_axes, _no_copy)
        self._states: Final = [index for index, name in enumerate(specs) if name.endswith("_state")]
        self._kept: Sequence[Tensor] = []

    def begin(self, length: int) -> None:
        """Takes the total number of tokens of the sequence that is appended next, which RoPE may depend on."""
        self._lengths.begin(length)

    def outgrown(self, length: int) -> bool:
        """Returns whether a sequence of so many tokens needs other keys than those in the caches, for all tokens."""
        return self._lengths.outgrown(length)

    def regime(self, length: int) -> int:
        """Returns a number that is the same for lengths with the same frequencies of RoPE."""
        return self._lengths.regime_of(length)

    def prefill(
        self, token_ids: np.ndarray, position: int, last: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Appends tokens i32 [1, chunk] and returns the prediction after row ``last``; see ``SequenceModel``."""
        if embeddings is None:
            return self._run(self._prefill, token_ids, position, last)[0]
        return self._run(self._prefill_embeddings, token_ids, embeddings, position, last)[0]

    def decode(self, token_id: int, position: int) -> Prediction:
        """Appends a token and returns the prediction after it."""
        called = self._decode
        lengths = (self._lengths.length,) if called.takes_length else ()
        results = called.updating(self.caches, token_id, position, *lengths, *self._seen)
        self.token_bytes += called.token_bytes
        return Single(results, called.next_ids, self._read)

    def verify(self, token_ids: np.ndarray, position: int, last: int) -> Rows:
        """Appends rows 0 to ``last`` of tokens i32 [1, T'] and returns the prediction after every row."""
        return self._run(self._verify, token_ids, position, last)

    def draft(self, token_id: int, position: int) -> Prediction:
        """Returns the head's prediction after a token that the model has not been fed."""
        called = self._draft
        self.head_calls += 1
        lengths = (self._lengths.length,) if called.takes_length else ()
        results = called.updating(self.caches, token_id, position, *lengths)
        self.token_bytes += called.token_bytes
        return Single(results, called.next_ids, self._read)

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of a picture, or a tile, of pixels f32 [3, height, width]."""
        return self._encoder(pixels)

    def clear_states(self) -> None:
        """Sets the states to zeros."""
        specs = list(self.cache_specs.values())
        self.caches.replace({index: self._session.zeros(specs[index]) for index in self._states})

    def keep_states(self) -> None:
        """Keeps a copy of the states on the device, in place of an earlier copy."""
        self._kept = self.caches.copies(self._states)

    def restore_states(self) -> None:
        """Makes the kept copy the states; there is none afterwards."""
        self.caches.replace(dict(zip(self._states, self._kept, strict=True)))
        self._kept = []

    def read_row(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies of the entries of some positions in every cache, and of whole states and rings.

        A cache [1, K, S, H] gives [K, stop - start, H], a state [1, ..] and a ring all their entries of the sequence.
        """
        return self._rows.read(0, start, stop)

    def write_row(self, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes arrays [K, n, H] and [..] that ``read_row`` returned, beginning at position ``start``."""
        self._rows.write(0, start, arrays)

    def _run(self, called: _Called, *given: np.ndarray | int) -> Rows:
        """Calls an entry point with token ids and positions and returns its predictions."""
        lengths = (self._lengths.length,) if called.takes_length else ()
        results = called.updating(self.caches, *given, *lengths, *self._seen)
        self.token_bytes += called.token_bytes
        return Rows(results, called.rows, called.next_ids, self._read)

    def _read(self, nbytes: int) -> None:
        """Counts bytes of ids that were read."""
        self.token_bytes += nbytes

    @cached_property
    def _encoder(self) -> ImageEncoder:
        return ImageEncoder(self._bundle, self._session)

    @cached_property
    def _prefill_embeddings(self) -> _Called:
        return _Called(self._bundle, self._session, PREFILL_EMBEDDINGS)

    @cached_property
    def _verify(self) -> _Called:
        return _Called(self._bundle, self._session, self._bundle.known_name(_VERIFY) or _VERIFY)

    @cached_property
    def _draft(self) -> _Called:
        return _Called(self._bundle, self._session, DRAFT)


def _no_copy(source: int, target: int) -> None:
    raise InputError(f"row {source} cannot be copied to row {target}: the bundle has one row")
