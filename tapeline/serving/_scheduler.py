"""The engine's tick."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from lang_core import TapelineError
from tapeline.serving._answer import Answer
from tapeline.serving._errors import ModelFailedError
from tapeline.serving._figures import EngineFigures
from tapeline.serving._guard import GuardedModel
from tapeline.serving._pieces import canonical_pieces
from tapeline.serving._queue import WaitingQueue
from tapeline.serving._settings import EngineSettings
from tapeline.serving._slots import SlotModel
from transformer_core.generation import Prediction


class Scheduler:
    """Runs answers on a model, a tick at a time. One thread only."""

    def __init__(
        self,
        model: SlotModel,
        queue: WaitingQueue,
        settings: EngineSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins with free rows."""
        self._model = GuardedModel(model)
        self._queue: Final = queue
        self._settings: Final = settings
        self._clock: Final = clock
        self._rows: list[Answer | None] = [None] * model.slots
        self._totals: Final[Counter[str]] = Counter()
        self._ended: Final[Counter[str]] = Counter()

    @property
    def busy(self) -> bool:
        """Whether an answer is running."""
        return any(self._rows)

    def tick(self) -> None:
        """Drops, admits, runs pieces of prompts and one step of all running answers.

        Raises:
            ModelFailedError: a call of the model raised.
        """
        self._drop()
        self._admit()
        self._prefill()
        self._decode()

    def fail(self, error: TapelineError) -> None:
        """Ends all running answers with an error."""
        for answer in self._rows:
            if answer:
                answer.end("error", error)
        self._free()

    def replace(self, model: SlotModel) -> None:
        """Goes on with another model, whose rows are empty."""
        self._model = GuardedModel(model)

    def figures(self) -> EngineFigures:
        """Returns the figures."""
        running = [answer for answer in self._rows if answer]
        return EngineFigures(
            running=len(running),
            waiting=len(self._queue),
            slots=len(self._rows),
            cache_usage=sum(answer.fed for answer in running) / (len(self._rows) * self._model.capacity),
            prefix_queries=self._totals["prefix_queries"],
            prefix_hits=self._totals["prefix_hits"],
            prompt_tokens=self._totals["prompt_tokens"],
            generated_tokens=self._totals["generated_tokens"],
            ended=dict(self._ended),
            failures=self._totals["failures"],
            store_bytes=0,
            store_budget=self._settings.store_bytes,
        )

    def _drop(self) -> None:
        now = self._clock()
        for answer in self._queue.remove(lambda answer: _leaves(answer, now)):
            answer.end("cancelled" if answer.cancelled else "deadline")
            self._ended[str(answer.reason)] += 1
        for answer in self._rows:
            if answer and _leaves(answer, now):
                answer.end("cancelled" if answer.cancelled else "deadline")
        self._free()

    def _free(self) -> None:
        for row, answer in enumerate(self._rows):
            if answer and answer.reason:
                self._rows[row] = None
                self._ended[answer.reason] += 1
                self._totals["generated_tokens"] += answer.generated

    def _admit(self) -> None:
        for row, answer in enumerate(self._rows):
            if answer is None:
                taken = self._queue.take()
                if taken is None:
                    return
                self._rows[row] = taken
                self._model.clear_row(row)

    def _prefill(self) -> None:
        for row, answer in enumerate(self._rows):
            if answer and answer.prefilling:
                prompt = answer.prompt.tolist()
                for size in canonical_pieces(len(prompt), self._model.chunks):
                    piece = prompt[answer.fed : answer.fed + size]
                    prediction = self._model.prefill_row(piece, row, answer.fed)
                    answer.fed += size
                    self._totals["prompt_tokens"] += size
                self._take(answer, prediction)
        self._free()

    def _decode(self) -> None:
        rows = [row for row, answer in enumerate(self._rows) if answer and not answer.prefilling]
        answers = [answer for answer in self._rows if answer and not answer.prefilling]
        if not answers:
            return
        token_ids = [int(answer.tokens[answer.fed]) for answer in answers]
        predictions = self._model.decode(rows, token_ids, [answer.fed for answer in answers])
        for answer, prediction in zip(answers, predictions, strict=True):
            answer.fed += 1
            self._take(answer, prediction)
        self._free()

    def _take(self, answer: Answer, prediction: Prediction) -> None:
        try:
            answer.take(prediction)
        except ModelFailedError:
            raise
        except TapelineError as error:
            answer.end("error", error)


def _leaves(answer: Answer, now: float) -> bool:
    return answer.cancelled or (answer.expires is not None and now >= answer.expires)
