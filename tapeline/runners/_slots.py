"""A bundle exported with slots on a device: rows of caches that the requests of a server share."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from generation import Prediction
from generation.engine import PagePool
from lang_core import InputError, checked_choices, encoding_named
from runtime import Results, Session
from tapeline.bundle import Bundle
from tapeline.runners._adapters import AdapterTables, adapter_tables
from tapeline.runners._invariance import Invariance, known_invariance
from tapeline.runners._pictures import ImageEncoder
from tapeline.runners._predictions import LOGITS, Row, Rows
from tapeline.runners._sized_calls import SizedCall, sized_calls, smallest
from tapeline.runners._slot_rows import position_axes, slot_rows
from transformer_core import PREFILL_EMBEDDINGS_ROW

SLOTS: Final = "slots"
"""Field of a bundle's model: the number of rows of the caches that requests share."""

_PREFILL: Final = "prefill_row"
_DECODE: Final = "decode"
_VERIFY: Final = "verify_row"


@checked_choices
class BundleSlots:
    """Rows of caches on a device, filled by calls that work on some of them; caches are donated, nothing is copied.

    Attributes:
        slots: number of rows.
        capacity: S, positions in each row.
        vocabulary: V.
        chunks: numbers of tokens that calls of ``prefill_row`` take, ascending.
        invariance: calls among which every token's bits are known to be the same.
        recurrent: whether a layer has a state or a ring, so that a row can only continue at its end.
        position_axes: axis of positions of each array that ``read_row`` returns; None of a state or a ring.
        position_bytes: bytes of one position of a row in all of those.
        verify_tokens: number of tokens that a call of ``verify_row`` takes; 0 if the bundle has none, or has states,
            which cannot take a token back.
        prefills: sizes of ``prefill_row``, ascending.
        seeing: the same of ``prefill_embeddings_row``; none for a text-only bundle.
        image_token: token that stands for a picture's embedding; None for a text-only bundle.
        whole_pictures: whether the tokens of a picture see each other, so that they run in one call.
        hidden: D, size of an embedding; 0 for a text-only bundle.
        decodes: sizes of ``decode``, ascending.
        cache_specs: specs of the caches and states of all rows, by name.
        kv_cache: encoding of keys and values in the caches; None if they are not quantized.
        adapters: adapters that rows may have; None if the bundle takes none.
        pages: pages of the rows; None if every row has ``capacity`` positions of its own.
        token_bytes: bytes of token ids, rows and positions that were moved so far, in and out.
    """

    def __init__(
        self,
        bundle: Bundle,
        session: Session,
        *,
        invariance: Invariance | None = None,
        adapters: AdapterTables | None = None,
    ) -> None:
        """Makes empty caches.

        Args:
            bundle: exported with slots.
            session: the bundle's session.
            invariance: see above; None for the bundle's measurement for the session's target, if any.
            adapters: those of an earlier runner of the session; None for empty ones.

        Raises:
            InputError: the bundle was exported without slots.
        """
        names = [point.name for point in bundle.config.entry_points]
        if SLOTS not in bundle.config.model:
            raise InputError(
                f"{bundle.path} has the entry points {', '.join(names)}, whose calls work on all rows of the caches: "
                f"export with slots=8, or as many requests as are to run at once"
            )
        model, largest = bundle.config.model, bundle.entry_point(_PREFILL)
        caches = {argument.name: argument.spec for argument in largest.arguments if argument.donated}
        self.slots: Final[int] = model[SLOTS]
        self.capacity: Final[int] = model["max_sequence"]
        self.vocabulary: Final = largest.results[LOGITS].spec.shape[-1]
        self.invariance: Final = invariance or known_invariance(model, session.target) or Invariance.NONE
        held: int = model.get("page_tokens", self.capacity)
        self.position_axes: Final = position_axes(caches, held)
        self.recurrent: Final = None in self.position_axes
        with_positions = zip(caches.values(), self.position_axes, strict=True)
        self.position_bytes: Final = sum(
            spec.nbytes // (spec.shape[0] * held) for spec, axis in with_positions if axis is not None
        )
        self.cache_specs: Final = caches
        encoding = model.get("caching", {}).get("kv_cache")
        self.kv_cache: Final = None if encoding is None else encoding_named(encoding)
        self.prefills: Final = sized_calls(bundle, session, _PREFILL)
        self.decodes: Final = sized_calls(bundle, session, _DECODE)
        self.seeing: Final = sized_calls(bundle, session, PREFILL_EMBEDDINGS_ROW)
        self.chunks: Final = tuple(prefill.size for prefill in self.prefills)
        self._encode: Final = ImageEncoder(bundle, session) if self.seeing else None
        self.image_token: Final[int | None] = model["image_token"] if self.seeing else None
        self.whole_pictures: Final[bool] = model.get("image_whole", False)
        self.hidden: Final[int] = (
            bundle.entry_point(PREFILL_EMBEDDINGS_ROW).arguments[1].spec.shape[-1] if self.seeing else 0
        )
        self._clear: Final = session.updating("clear_row", 0) if "clear_row" in names else None
        verify = bundle.known_name(_VERIFY)
        self._verify: Final = None if verify is None else SizedCall(bundle, session, verify)
        self.verify_tokens: Final = 0 if self._verify is None or self._clear else self._verify.size
        self._caches: Final = session.hold([session.zeros(spec) for spec in caches.values()])
        pool = PagePool(self.slots, model["pages"], held, self.capacity // held) if "pages" in model else None
        self._rows: Final = slot_rows(self._caches, self.position_axes, session.updating("copy_row", 0), pool)
        self.pages: Final = pool
        self.adapters: Final = adapters or adapter_tables(bundle, session)
        self._adapter_of_row: Final = dict[int, int]()
        self.token_bytes = 0

    @property
    def invariant(self) -> bool:
        """True if every token's bits are known to be the same in whatever chunk and batch it is computed."""
        return self.invariance is Invariance.CALLS

    def prefill_row(
        self, token_ids: Sequence[int], row: int, position: int, embeddings: np.ndarray | None = None
    ) -> Prediction:
        """Appends tokens to a row and returns the prediction after the last one.

        The smallest entry point that takes so many runs; padding beyond them has no effect.

        Args:
            token_ids: 1 to ``chunks[-1]`` tokens.
            row: the row.
            position: position of the first token.
            embeddings: f32 [tokens, D], of which those of image tokens are read; None if there are none of these.

        Raises:
            InputError: there are zero or too many tokens, they do not fit into the row, or the bundle is text-only.
        """
        count = len(token_ids)
        self._check_tokens(_PREFILL, "prompt", count, self.chunks[-1], position)
        if embeddings is None:
            return self.run_prefill(smallest(self.prefills, count), token_ids, row, position)
        if not self.seeing:
            raise InputError(f"prefill_row: the bundle has no {PREFILL_EMBEDDINGS_ROW}: leave out the embeddings")
        return self.run_prefill(smallest(self.seeing, count), token_ids, row, position, embeddings)

    def run_prefill(
        self,
        entry: SizedCall,
        token_ids: Sequence[int],
        row: int,
        position: int,
        embeddings: np.ndarray | None = None,
    ) -> Prediction:
        """Runs ``prefill_row`` by one of ``prefills``, or ``seeing``, which takes so many tokens.

        ``embeddings`` [tokens, D] are as for ``prefill_row``.
        """
        results = self._appended(entry, token_ids, row, position, embeddings)
        return Row(Rows(results, 1, entry.next_ids, self._read), 0)

    def verify_row(self, token_ids: Sequence[int], row: int, position: int) -> Sequence[Prediction]:
        """Appends tokens to a row, as ``prefill_row`` does, and returns the predictions after each of them.

        Args:
            token_ids: 1 to ``verify_tokens`` tokens.
            row: the row.
            position: position of the first token.

        Raises:
            InputError: there are zero or too many tokens, or they do not fit into the row, or the bundle cannot score.
        """
        if self._verify is None:
            raise InputError(f"{_VERIFY}: the bundle was exported without it: export with verify_tokens=4")
        self._check_tokens(_VERIFY, "draft", len(token_ids), self.verify_tokens, position)
        results = self._appended(self._verify, token_ids, row, position)
        return Rows(results, self.verify_tokens, self._verify.next_ids, self._read)[: len(token_ids)]

    def _appended(
        self,
        entry: SizedCall,
        token_ids: Sequence[int],
        row: int,
        position: int,
        embeddings: np.ndarray | None = None,
    ) -> Results:
        padded = np.zeros((1, entry.size), np.int32)
        padded[0, : len(token_ids)] = token_ids
        given: list[np.ndarray] = [padded]
        if embeddings is not None:
            given.append(np.zeros((1, entry.size, embeddings.shape[1]), np.float32))
            given[1][0, : len(token_ids)] = embeddings
        place = self._rows.place(row, position, len(token_ids))
        entry, adapters = self._with_adapters(entry, [row])
        self.token_bytes += entry.token_bytes
        return entry.call(self._caches, *given, place, position, len(token_ids) - 1, *adapters)

    def _with_adapters(self, entry: SizedCall, rows: Sequence[int | None]) -> tuple[SizedCall, list[Any]]:
        """Returns the call with the adapters of some rows, and their arguments; the call itself if no row has one.

        Rows at rest are None.
        """
        numbers = [0 if row is None else self._adapter_of_row.get(row, 0) for row in rows]
        if not any(numbers) or entry.adapted is None or self.adapters is None:
            return entry, []
        return entry.adapted, self.adapters.arguments(numbers)

    @property
    def adapter_count(self) -> int:
        """Number of adapters that rows may have; 0 if the bundle takes none."""
        return 0 if self.adapters is None else self.adapters.count

    def adapt_row(self, row: int, adapter: int) -> None:
        """Makes a row's next calls add an adapter, by its number from 1 on; 0 for none.

        Raises:
            InputError: the bundle does not have so many.
        """
        if not 0 <= adapter <= self.adapter_count:
            raise InputError(
                f"adapter {adapter} of row {row}: the bundle takes {self.adapter_count}: export with adapters={adapter}"
            )
        self._adapter_of_row[row] = adapter

    def _check_tokens(self, name: str, text: str, count: int, most: int, position: int) -> None:
        if not 1 <= count <= most:
            raise InputError(f"{name}: expected 1 to {most} tokens; found {count}: cut the {text}")
        if position + count > self.capacity:
            raise InputError(
                f"{name}: {count} tokens at position {position} do not fit into {self.capacity} positions: ask for "
                f"fewer, or export with a larger max_sequence"
            )

    def encode_image(self, pixels: np.ndarray) -> np.ndarray:
        """Returns the embeddings f32 [T', D] of a picture, or a tile, of pixels f32 [3, height, width].

        Raises:
            InputError: the bundle is text-only.
        """
        if self._encode is None:
            raise InputError(f"encode_image: the bundle has no {PREFILL_EMBEDDINGS_ROW}: it takes no pictures")
        return self._encode(pixels)

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Appends a token to each of some rows and returns the predictions after them.

        A token's call has to give the same bits each time. If every call does, the smallest that takes so many rows
        runs; if all rows of a call do, the largest, with each row in its place; else the smallest, row by row. Rows
        with adapters, each its own, and rows without have calls of their own: kernels that compute several ops at once
        give a row without an adapter other bits than the call with adapters does.

        Args:
            rows: 1 to ``slots`` rows, each once.
            token_ids: a token per row.
            positions: its position, per row.

        Raises:
            InputError: a row is named twice, or there are none.
        """
        if not rows or len(set(rows)) != len(rows):
            raise InputError(f"decode: expected at least one row, each once; found {list(rows)}")
        steps = list(zip(rows, token_ids, positions, strict=True))
        adapted = [step for step in steps if self._adapter_of_row.get(step[0])]
        if not adapted or len(adapted) == len(steps):
            return self._decoded(rows, token_ids, positions)
        predictions: dict[int, Prediction] = {}
        for kind in (adapted, [step for step in steps if step not in adapted]):
            ran = self._decoded(*zip(*kind, strict=True))
            predictions |= {row: prediction for (row, *_), prediction in zip(kind, ran, strict=True)}
        return [predictions[row] for row in rows]

    def _decoded(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        if self.invariant:
            return self.run_decode(smallest(self.decodes, len(rows)), rows, token_ids, positions)
        if self.invariance is Invariance.ROWS:
            return self.run_in_place(rows, token_ids, positions)
        steps, single = zip(rows, token_ids, positions, strict=True), self.decodes[0]
        return [self.run_decode(single, [row], [token], [position])[0] for row, token, position in steps]

    def run_decode(
        self, entry: SizedCall, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]
    ) -> Sequence[Prediction]:
        """Runs ``decode`` by one of ``decodes``, which takes so many rows; others fill it up, and rest."""
        resting = [row for row in range(self.slots) if row not in rows]
        return self._run_batch(entry, [*rows, *resting[: entry.size - len(rows)]], rows, token_ids, positions)

    def run_in_place(
        self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]
    ) -> Sequence[Prediction]:
        """Runs ``decode`` with all rows in the order of their numbers; unnamed rows rest."""
        return self._run_batch(self.decodes[-1], range(self.slots), rows, token_ids, positions)

    def _run_batch(
        self,
        entry: SizedCall,
        batch: Sequence[int],
        rows: Sequence[int],
        token_ids: Sequence[int],
        positions: Sequence[int],
    ) -> Sequence[Prediction]:
        places = [batch.index(row) for row in rows]
        given = np.zeros((3, entry.size), np.int32)
        given[:, places] = token_ids, positions, np.ones(len(rows), np.int32)
        token, position, count = given
        row = self._rows.places(batch, rows, positions)
        entry, adapters = self._with_adapters(entry, [row if row in rows else None for row in batch])
        results = entry.call(self._caches, token[:, None], row, position, count, *adapters)
        self.token_bytes += entry.token_bytes
        predictions = Rows(results, entry.size, entry.next_ids, self._read)
        return [predictions[place] for place in places]

    def score_room(self, row: int, position: int) -> int:
        """Returns ``verify_tokens``: padding beyond the row has no effect."""
        del row, position
        return self.verify_tokens

    def copy_row(self, source: int, target: int, count: int | None = None) -> None:
        """Makes a row's states those of another one, and its first ``count`` positions, or all; pages are shared."""
        if source != target:
            self._rows.copy(source, target, count)

    def clear_row(self, row: int) -> None:
        """Sets a row's states to zeros, if there are some, and takes its pages; entries are not cleared."""
        self._rows.clear(row)
        if self._clear is not None:
            self._clear(self._caches, row)

    def read_row(self, row: int, start: int, stop: int) -> Sequence[np.ndarray]:
        """Returns copies of a row's entries of positions ``start`` to ``stop`` in every cache, and of whole states.

        A cache [B, K, S, H] gives [K, stop - start, H], a state [B, ..] its row [..].
        Of a ring cache, which does not hold every position, all entries are copied.

        Raises:
            InputError: the row or the positions do not exist.
        """
        self._check_part(row, start, stop)
        return self._rows.read(row, start, stop)

    def write_row(self, row: int, start: int, arrays: Sequence[np.ndarray]) -> None:
        """Writes the arrays of ``read_row`` into a row, in its shapes, beginning at position ``start``.

        Raises:
            InputError: the row or the positions do not exist.
            DeviceError: an array has another shape or dtype than ``read_row`` gives.
        """
        for axis, array in zip(self.position_axes, arrays, strict=True):
            self._check_part(row, start, start if axis is None else start + array.shape[axis])
        self._rows.write(row, start, arrays)

    def _check_part(self, row: int, start: int, stop: int) -> None:
        if not 0 <= row < self.slots:
            raise InputError(f"rows are 0 to {self.slots - 1}; found {row}")
        if not 0 <= start <= stop <= self.capacity:
            raise InputError(f"a row has positions 0 to {self.capacity}; found {start} to {stop}")

    def _read(self, nbytes: int) -> None:
        """Counts bytes of ids that were read."""
        self.token_bytes += nbytes
