"""Prompts that are being run: in the order in which they were admitted, a few pieces in each tick."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from generation import Prediction
from generation.engine._answer import Answer
from generation.engine._guard import GuardedModel
from generation.engine._pace import Allowance, Pace
from generation.engine._pictures import PictureEncoder, PromptPicture, whole_size
from generation.engine._pieces import canonical_pieces
from generation.engine._prefixes import Prefixes, salt_of_adapter, salt_of_regime
from generation.engine._settings import EngineSettings
from generation.engine._slot import Slot
from generation.engine._times import TickTimes

_WELL: Final = 1.3  # times the least seconds of a token


class Prefill:
    """Runs prompts.

    A row's prefix is chosen when its turn has come, not when it is admitted: of requests that come together with a
    common prefix, all but the first reuse the first one's entries.
    """

    def __init__(
        self,
        model: GuardedModel,
        slots: Sequence[Slot],
        settings: EngineSettings,
        clock: Callable[[], float],
        totals: Counter[str],
        times: TickTimes,
    ) -> None:
        """Begins without prompts; ``totals`` and ``times`` are added to."""
        self._model: Final = model
        self._slots: Final = slots
        self._settings: Final = settings
        self._totals: Final = totals
        self._clock: Final = clock
        self._times: Final = times
        self._pace: Final = Pace(clock)
        self._line: Final[deque[tuple[Slot, Answer]]] = deque()
        self.prefixes: Final = Prefixes(model, settings.store_bytes, settings.block_tokens)
        self._encoder: Final = PictureEncoder(model, settings.picture_bytes)
        self._encoding: Final = Pace(clock)

    def add(self, slot: Slot, answer: Answer) -> None:
        """Adds an answer that was given a row."""
        slot.give(answer)
        self._line.append((slot, answer))

    def again(self, slot: Slot) -> None:
        """Adds an answer that runs all its tokens again, in its row."""
        answer = slot.answer
        assert answer
        answer.refill()
        answer.salt = self.salt_of(answer)
        slot.begun = False
        self._line.append((slot, answer))

    def salt_of(self, answer: Answer) -> str | None:
        """Returns the owner of the prefixes that an answer may reuse.

        The same salt, the same adapter, and the same keys for its length.
        """
        salt = salt_of_regime(answer.request.cache_salt, self._model.regime(len(answer.prompt)))
        return salt_of_adapter(salt, answer.request.adapter)

    def run(self, take: Callable[[Slot, Prediction], None], decode_seconds: float = 0.0) -> None:
        """Runs as many pieces as one tick has room for.

        Args:
            take: receives each row with a finished prompt, and the prediction after it.
            decode_seconds: time that the step of the running answers will take.
        """
        seconds = self._settings.prompt_seconds(decode_seconds)
        allowance = Allowance(self._settings.max_batched_tokens, seconds, self._clock)
        while self._line:
            slot, answer = self._line[0]
            if slot.answer is answer:  # it has not left meanwhile
                if not slot.begun:
                    with self._times.part("prefix"):
                        self._begin(slot)
                if not self._run_pieces(slot, allowance, take):
                    return
            self._line.popleft()

    def _begin(self, slot: Slot) -> None:
        """Makes a row ready for its answer, with as much of the prompt as is known."""
        answer = slot.answer
        assert answer
        self._model.begin_row(slot.row, answer.prompt)
        adapter = answer.request.adapter
        self._model.adapt_row(slot.row, 0 if adapter is None else adapter.number)
        if not answer.prefilling:  # its tokens are scored
            self.prefixes.save(slot, 0)
            self._clear(slot, answer.salt)
        else:
            self._reuse(slot)
            answer.fed = slot.filled
            if not answer.generated:
                answer.reused = slot.filled
            self._totals["prefix_queries"] += len(answer.prompt)
            self._totals["prefix_hits"] += slot.filled
        slot.begun = True  # last: only now it is known what the row holds

    def _reuse(self, slot: Slot) -> None:
        assert slot.answer
        prompt, salt, prefixes = slot.answer.prompt_keys, slot.answer.salt, self.prefixes
        if salt is None:
            prefixes.save(slot, 0)
            self._clear(slot, salt)
            return
        own = prefixes.held(slot, prompt, salt)
        others = [(prefixes.held(other, prompt, salt), other) for other in self._slots if other is not slot]
        most, source = max(others, key=lambda pair: pair[0], default=(0, slot))
        stored = prefixes.stored(prompt, salt)
        gain = own + self._model.chunks[0]  # what copies has to save more than the smallest piece
        if stored.length >= gain and stored.length > most:
            prefixes.save(slot, 0)
            prefixes.restore(slot, stored, prompt, salt)
        elif most >= gain:
            prefixes.save(slot, 0)
            self._model.copy_row(source.row, slot.row, most)
            slot.hold(prompt[:most], [stop for stop in source.cut if stop <= most], salt)
            slot.block = source.block
        elif own:
            prefixes.save(slot, own)
            slot.hold(prompt[:own], [stop for stop in slot.cut if stop <= own], salt)
        else:
            prefixes.save(slot, 0)
            self._clear(slot, salt)

    def _clear(self, slot: Slot, salt: str | None) -> None:
        slot.hold(slot.tokens[:0], [], salt)
        slot.block = None if salt is None else self.prefixes.store.root(salt)
        if self._model.recurrent:
            self._model.clear_row(slot.row)

    def _run_pieces(self, slot: Slot, allowance: Allowance, take: Callable[[Slot, Prediction], None]) -> bool:
        """Runs pieces of one prompt, and returns whether it is done."""
        answer = slot.answer
        assert answer
        while answer.prefilling:
            size = self._size(slot, allowance)
            if not size:
                return False
            picture = answer.sight.missing(slot.filled, slot.filled + size, self._encoder)
            if picture is not None:
                if not self._encoded(answer, picture, allowance):
                    return False
                continue
            allowance.spend(size)
            prediction = self._run_piece(slot, size)
            if not answer.prefilling:
                answer.sight.forget()
                take(slot, prediction)
        return True

    def _encoded(self, answer: Answer, picture: PromptPicture, allowance: Allowance) -> bool:
        """Computes the embeddings of an image, and returns False if this tick lacks the time for it."""
        tokens = picture.stop - picture.start
        seconds = self._encoding.seconds(0)
        if allowance.spent and not allowance.allows(tokens, seconds, any(other.ready for other in self._slots)):
            return False
        allowance.spend(tokens)
        with self._times.part("encode"):
            embeddings = self._encoding.measured(0, partial(self._encoder.encode, picture, answer.request.cache_salt))
        answer.sight.add(picture, embeddings)
        return True

    def _size(self, slot: Slot, allowance: Allowance) -> int:
        """Returns the size of the next piece; 0 if it does not fit."""
        answer = slot.answer
        assert answer
        limited = any(other.ready for other in self._slots)
        left = len(answer.prompt) - slot.filled
        sizes = canonical_pieces(left, self._model.chunks)[:1]
        if self._model.invariant and limited:  # smaller ones are as good
            sizes += [chunk for chunk in reversed(self._model.chunks) if chunk < sizes[0]]
            sizes = self._well_run(sizes) if self._settings.target_itl is None else sizes
        sizes = [whole_size(slot.filled, size, answer.request.pictures) for size in sizes]
        fits = (size for size in sizes if allowance.allows(size, self._pace.seconds(self._chunk(size)), limited))
        return next(fits, 0 if allowance.spent else sizes[-1])

    def _well_run(self, sizes: Sequence[int]) -> list[int]:
        """Returns the sizes of which a token takes about as long as of the best one."""
        seconds = [self._pace.seconds(self._chunk(size)) / size for size in sizes]
        return [size for size, own in zip(sizes, seconds, strict=True) if own <= _WELL * min(seconds)]

    def _chunk(self, size: int) -> int:
        """Returns the chunk in which a piece is run."""
        return next(chunk for chunk in sorted(self._model.chunks) if chunk >= size)

    def _run_piece(self, slot: Slot, size: int) -> Prediction:
        assert slot.answer
        start, stop = slot.filled, slot.filled + size
        piece, embeddings = slot.answer.prompt[start:stop].tolist(), slot.answer.sight.rows(start, stop)
        call = partial(self._model.prefill_row, piece, slot.row, start, embeddings)
        with self._times.part("prefill"):
            prediction = self._pace.measured(self._chunk(size), call)
        slot.feed(size)
        self._totals["prompt_tokens"] += size
        if size in self._model.chunks:
            slot.cut.append(slot.filled)
            if self._model.recurrent and (self._settings.checkpoint_pieces or self._one_is_left(slot.answer)):
                self.prefixes.checkpoint(slot)
        return prediction

    def _one_is_left(self, answer: Answer) -> bool:
        """Returns whether one piece of a prompt is left."""
        return len(canonical_pieces(len(answer.prompt) - answer.fed, self._model.chunks)) == 1
