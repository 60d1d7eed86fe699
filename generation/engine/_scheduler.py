"""The engine's tick."""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from generation import Prediction
from generation.engine._answer import Answer
from generation.engine._archive import PrefixArchive
from generation.engine._drafts import Drafting, RowDrafts
from generation.engine._errors import ModelFailedError
from generation.engine._figures import EngineFigures
from generation.engine._guard import GuardedModel
from generation.engine._pace import Pace
from generation.engine._prefill import Prefill
from generation.engine._prefixes import RowPrefix
from generation.engine._queue import WaitingQueue
from generation.engine._row_pages import RowPages
from generation.engine._runner import ModelRunner
from generation.engine._settings import EngineSettings
from generation.engine._slot import Slot
from generation.engine._times import TickTimes
from lang_core import TapelineError

_WAIT: Final = 0.005  # seconds for a constraint while no answer can go on


class Scheduler:
    """Runs answers on a model, a tick at a time. One thread only, but for ``figures``."""

    def __init__(
        self,
        model: ModelRunner,
        queue: WaitingQueue,
        settings: EngineSettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        drafting: Drafting | None = None,
    ) -> None:
        """Begins with free rows; raises ``ConfigError`` if the model cannot verify the drafts that are wanted."""
        self._queue: Final = queue
        self._settings: Final = settings
        self._drafting: Final = drafting
        self._clock: Final = clock
        self._totals: Final[Counter[str]] = Counter()
        self._ended: Final[Counter[str]] = Counter()
        self._times: Final = TickTimes(clock)
        self._ticks = 0
        self.replace(model)

    def replace(self, model: ModelRunner) -> None:
        """Switches to another model with empty rows, and an empty store."""
        self._model = GuardedModel(model, self._settings.largest_chunk)
        self._slots = [Slot(row, model.capacity) for row in range(model.slots)]
        self._pace = Pace(self._clock)  # of a tick's next tokens, by the number of rows
        self._drafts = (
            None if self._drafting is None else RowDrafts(self._model, self._drafting, exact=self._settings.exact)
        )
        self._prefill = Prefill(self._model, self._slots, self._settings, self._clock, self._totals, self._times)
        self._pages = RowPages(self._model, self._slots, self._prefill.prefixes)

    @property
    def busy(self) -> bool:
        """True while an answer is running."""
        return any(slot.answer for slot in self._slots)

    def tick(self) -> None:
        """Drops, admits, runs pieces of prompts, and a step of all running answers.

        Raises:
            ModelFailedError: a call of the model raised.
        """
        self._ticks += 1
        with self._times.part("tick"):
            self._drop()
            self._admit()
            self._resume()
            generated = self._totals["generated_tokens"]
            self._prefill.run(self._take, self._pace.seconds(sum(slot.ready for slot in self._slots)))
            if self._settings.decode_after_prompts or self._totals["generated_tokens"] == generated:
                self._decode()
            self._free()
        self._times.end()

    def fail(self, error: ModelFailedError) -> None:
        """Ends all running answers, for a call of the model has failed, and lets go of the model."""
        self._totals["failures"] += 1
        self.end_running(error)
        for raised in (error, error.__cause__):
            traceback.clear_frames(raised.__traceback__ if raised else None)  # they hold the model
        self._model.release()

    def end(self, error: TapelineError) -> None:
        """Ends all answers, running and waiting, with an error."""
        self.end_running(error)
        for answer in self._queue.remove(lambda _: True):
            answer.end("error", error)
            self._ended["error"] += 1

    def end_running(self, error: TapelineError) -> None:
        """Ends all running answers with an error; nothing of them is reused."""
        for slot in self._slots:
            if slot.answer:
                slot.answer.end("error", error)
        self._free()

    def interrupt(self) -> None:
        """Ends all running answers after an interrupted tick.

        Rows keep the entries that they had before it. A row with a state may have gone further, and one that was being
        made ready for its answer may hold anything: these keep nothing.
        """
        for slot in self._slots:
            if slot.answer:
                slot.answer.end("cancelled")
                if self._model.recurrent or not slot.begun:
                    self._pages.forget(slot)
        self._free()

    def put_prefix(self, prefix: RowPrefix, salt: str) -> None:
        """Makes a row hold a prefix for a salt."""
        self._prefill.prefixes.put(self._slots[0], prefix, salt)

    def load_prefixes(self, archive: PrefixArchive) -> None:
        """Fills the prefix store from an archive, before the first request."""
        self._prefill.prefixes.load(archive)

    def save_prefixes(self, archive: PrefixArchive) -> None:
        """Saves the prefix store and the rows in an archive, behind the last request."""
        self._prefill.prefixes.archive(archive, [slot for slot in self._slots if slot.answer is None])

    def last_prefix(self, below: int) -> RowPrefix | None:
        """Returns the entries of the last answer's prompt in its row; None if there is nothing."""
        return self._prefill.prefixes.whole(max(self._slots, key=lambda slot: slot.used), below)

    def figures(self) -> EngineFigures:
        """Returns the figures. Any thread may call it."""
        return EngineFigures(
            running=sum(slot.answer is not None for slot in self._slots),
            waiting=len(self._queue),
            slots=len(self._slots),
            cache_usage=self._pages.usage(),
            prefix_queries=self._totals["prefix_queries"],
            prefix_hits=self._totals["prefix_hits"],
            prompt_tokens=self._totals["prompt_tokens"],
            generated_tokens=self._totals["generated_tokens"],
            draft_tokens=self._totals["draft_tokens"],
            accepted_tokens=self._totals["accepted_tokens"],
            ended=dict(self._ended),
            failures=self._totals["failures"],
            store_bytes=self._prefill.prefixes.store.nbytes,
            store_budget=self._settings.store_bytes,
            tick_seconds=self._times.histograms(),
        )

    def _drop(self) -> None:
        now = self._clock()
        for answer in self._queue.remove(lambda answer: answer.leaves(now)):
            answer.leave()
            self._ended[str(answer.reason)] += 1
        for slot in self._slots:
            if slot.answer and slot.answer.leaves(now):
                slot.answer.leave()
        self._free()

    def _free(self) -> None:
        """Frees the rows of answers that have ended."""
        for slot in self._slots:
            answer = slot.answer
            if answer and answer.reason:
                self._ended[answer.reason] += 1
                slot.free(self._ticks)
                self._pages.free(slot)
                if answer.reason == "error":  # nobody knows why, so nothing of it is used again
                    self._pages.forget(slot)

    def _admit(self) -> None:
        while (free := [slot for slot in self._slots if slot.answer is None]) and (answer := self._queue.first()):
            answer.salt = self._prefill.salt_of(answer)
            slot = self._place(answer, free)
            if not self._pages.reserve(slot, answer):
                return  # until others have ended
            self._queue.take()
            self._prefill.add(slot, answer)
            self._advance(slot, answer.begin)

    def _place(self, answer: Answer, free: list[Slot]) -> Slot:
        """Returns the row with the longest prefix of a prompt, if that is at least half of the row; else the oldest."""
        held = {slot: self._prefill.prefixes.held(slot, answer.prompt_keys, answer.salt) for slot in free}
        best = max(free, key=lambda slot: held[slot])
        if held[best] and 2 * held[best] >= best.filled:
            return best
        return min(free, key=lambda slot: (slot.filled > 0, slot.used))

    def _outgrow(self) -> None:
        """Has answers run anew, from the next tick on, that have outgrown their keys."""
        for slot in self._slots:
            if slot.ready and slot.answer and self._model.outgrown(slot.row, len(slot.answer.tokens)):
                self._prefill.again(slot)

    def _decode(self) -> None:
        self._outgrow()
        slots = [slot for slot in self._slots if slot.ready and slot.answer and not slot.answer.reason]
        if slots:
            self._pace.measured(len(slots), partial(self._run_next, slots))

    def _run_next(self, slots: Sequence[Slot]) -> None:
        """Runs the next token of each of some rows, with its draft or the known tokens of its prompt, if any."""
        known = {slot: self._known(slot) for slot in slots}
        for slot, tokens in known.items():
            if tokens:
                self._run_tokens(slot, tokens)
        slots = [slot for slot in slots if not known[slot]]
        drafts = self._propose(slots)
        plain = [slot for slot, draft in zip(slots, drafts, strict=True) if not draft]
        if plain:
            self._run_step(plain)
        for slot, draft in zip(slots, drafts, strict=True):
            if draft:
                self._totals["draft_tokens"] += len(draft)
                self._totals["accepted_tokens"] += self._run_tokens(slot, draft)

    def _known(self, slot: Slot) -> Sequence[int]:
        """Returns those of the prompt's tokens behind the next one that one call scores with it."""
        assert slot.answer
        if self._settings.exact and not self._model.invariant:  # a call of several tokens would have other bits
            return ()
        start = slot.filled + 1
        if start >= len(slot.answer.prompt):
            return ()
        return slot.answer.prompt[start : start + self._model.score_room(slot.row, slot.filled) - 1].tolist()

    def _propose(self, slots: Sequence[Slot]) -> Sequence[list[int]]:
        if self._drafts is None:
            return [[]] * len(slots)
        with self._times.part("draft"):
            return self._drafts.propose(slots)

    def _run_step(self, slots: Sequence[Slot]) -> None:
        """Runs the next token of each of some rows."""
        rows, positions = [slot.row for slot in slots], [slot.filled for slot in slots]
        with self._times.part("decode"):
            predictions = self._model.decode(rows, [slot.next_token for slot in slots], positions)
        for slot, prediction in zip(slots, predictions, strict=True):
            slot.feed(1)
            self._take(slot, prediction)

    def _run_tokens(self, slot: Slot, tokens: Sequence[int]) -> int:
        """Runs a row's next token and some that may follow, up to the first that does not.

        Returns:
            The number of those that do.
        """
        with self._times.part("decode"):
            predictions = self._model.verify_row([slot.next_token, *tokens], slot.row, slot.filled)
        for count, (prediction, guess) in enumerate(zip(predictions, [*tokens, None], strict=True)):
            slot.feed(1)
            self._take(slot, prediction)
            assert slot.answer
            if slot.answer.reason or slot.answer.waiting or slot.next_token != guess:
                return count
        raise AssertionError("the last token has no guess behind it")

    def _take(self, slot: Slot, prediction: Prediction) -> None:
        answer = slot.answer
        assert answer
        self._advance(slot, partial(answer.take, prediction))

    def _resume(self) -> None:
        """Continues answers after their constraints have computed the masks."""
        waiting = [slot for slot in self._slots if slot.answer and slot.answer.waiting]
        for slot in waiting:
            assert slot.answer
            self._advance(slot, partial(slot.answer.resume, 0.0))
        if waiting and all(slot.answer is None or slot.answer.waiting for slot in self._slots):
            first = waiting[0].answer
            assert first
            self._advance(waiting[0], partial(first.resume, _WAIT))  # nothing else is to be done

    def _advance(self, slot: Slot, call: Callable[[], None]) -> None:
        """Makes a call of an answer, which ends if that raises."""
        answer = slot.answer
        assert answer
        generated = answer.generated
        with self._times.part("choose"):
            try:
                call()
            except ModelFailedError:
                raise
            except TapelineError as error:
                answer.end("error", error)
        self._totals["generated_tokens"] += answer.generated - generated
