"""The engine without a thread: requests in, events out, whenever its caller asks for a step."""

import time
from collections.abc import Callable
from typing import Final

from generation.engine._answer import Answer
from generation.engine._archive import PrefixArchive
from generation.engine._drafts import Drafting
from generation.engine._errors import EngineClosedError, ModelFailedError
from generation.engine._figures import EngineFigures
from generation.engine._pictures import check_pictures
from generation.engine._prefixes import RowPrefix
from generation.engine._queue import WaitingQueue
from generation.engine._request import OnEvent, TokenRequest
from generation.engine._runner import AdaptedRunner, ModelRunner
from generation.engine._scheduler import Scheduler
from generation.engine._settings import EngineSettings
from lang_core import InputError, TapelineError


class Ticket:
    """Handle of a request that was submitted."""

    def __init__(self, answer: Answer, queue: WaitingQueue) -> None:
        """Holds a request's answer."""
        self._answer: Final = answer
        self._queue: Final = queue

    def cancel(self) -> None:
        """Ends the answer within one step; does nothing if it has ended. Any thread may call it, more than once."""
        self._answer.cancelled = True
        self._queue.wake()


class StepEngine:
    """Answers requests with a model, several at once. Every answer is that of the request alone, bit for bit.

    One thread makes the steps; requests may come from any.

    Attributes:
        queue: requests that wait for a row.
        slots: number of rows, B.
        capacity: positions of a row, S.
        vocabulary: number of tokens, V.

    Example::

        engine = StepEngine(runner)
        engine.submit(TokenRequest(prompt=[1, 5], sampling=SamplingConfig(), max_new_tokens=8), print)
        while engine.busy:
            engine.step()
    """

    def __init__(
        self,
        model: ModelRunner,
        settings: EngineSettings | None = None,
        *,
        remake: Callable[[], ModelRunner] | None = None,
        drafting: Drafting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins without requests.

        Args:
            model: model, which only the engine may call from now on.
            settings: settings; the defaults if None.
            remake: returns a model with caches made anew, after a call of the model failed; if None, or if it raises,
                no more steps can be made then.
            drafting: speculation; None for none.
            clock: seconds that only go up.

        Raises:
            ConfigError: the model cannot verify drafts, or none so long.
        """
        self._settings: Final = settings or EngineSettings()
        self._clock: Final = clock
        self._remake: Final = remake
        self.capacity: Final = model.capacity
        self.slots: Final = model.slots
        self.vocabulary: Final = model.vocabulary
        self._image_token: Final = model.image_token
        self._most_tokens: Final = max(model.chunks)
        self._adapters: Final = model.adapter_count if isinstance(model, AdaptedRunner) else 0
        self.queue: Final = WaitingQueue(self._settings.max_waiting, clock)
        self._scheduler: Final = Scheduler(model, self.queue, self._settings, clock, drafting=drafting)

    @property
    def busy(self) -> bool:
        """True while a request waits or is answered."""
        return self._scheduler.busy or len(self.queue) > 0

    def check_room(self, count: int) -> None:
        """Checks whether some requests could be submitted now, before work is put into them. Any thread may call it.

        Requests for free rows do not need room in the queue, and count as if all rows were free.

        Args:
            count: number of requests.

        Raises:
            InputError: they are more than the queue and the rows take at once.
            BusyError: the queue is full.
            EngineClosedError: the engine is closed, or about to be.
        """
        most = self._settings.max_waiting + self.slots
        if count > most:
            raise InputError(f"{count} answers at once are more than the {most} that the engine takes: ask for fewer")
        self.queue.check_room(max(1, count - self.slots))

    def submit(self, request: TokenRequest, on_event: OnEvent) -> Ticket:
        """Adds a request to the queue. Any thread may call it.

        Args:
            request: the request.
            on_event: receives events, on the thread that makes the steps; it must not block. If it raises, the
                answer is cancelled.

        Raises:
            InputError: the prompt is empty, has ids that are none, or does not fit with its new tokens; or its pictures
                are not in the places of its image tokens, one behind the other.
            BusyError: the queue is full.
            EngineClosedError: the engine is closed, or about to be.
        """
        self._check(request)
        seconds = self._settings.deadline if request.deadline is None else request.deadline
        expires = None if seconds is None else self._clock() + seconds
        answer = Answer(request, on_event, self.vocabulary, expires)
        self.queue.put(answer)
        return Ticket(answer, self.queue)

    def step(self) -> None:
        """Runs pieces of prompts, and the next token of every answer that runs.

        After a failed call of the model its answers have ended with ``ModelFailedError``, and the model is made anew.
        After a KeyboardInterrupt they have ended as cancelled; after any other exception, with an error.

        Raises:
            EngineClosedError: a call of the model failed, and it cannot be made anew.
        """
        try:
            self._scheduler.tick()
        except ModelFailedError as error:
            self._scheduler.fail(error)
            self._scheduler.replace(self._made_anew(error))
        except KeyboardInterrupt:
            self._scheduler.interrupt()
            raise
        except BaseException as error:
            self._scheduler.end_running(
                EngineClosedError(f"a step of the engine failed ({type(error).__name__}: {error}): ask again")
            )
            raise

    def put_prefix(self, prefix: RowPrefix, salt: str = "") -> None:
        """Makes a row hold a prefix that ``last_prefix`` returned, before the first request.

        Args:
            prefix: of a model with the same bits.
            salt: of the requests that may reuse it.

        Raises:
            ModelFailedError: the model does not take these arrays.
        """
        self._scheduler.put_prefix(prefix, salt)

    def last_prefix(self, below: int) -> RowPrefix | None:
        """Returns the entries of whole pieces of the last answer's prompt, to be kept outside the engine.

        Args:
            below: more than the largest number of tokens, such as the prompt's, because its last token always runs.

        Returns:
            The longest prefix; None if there is none, or the model is recurrent and the prefix store has lost it.
        """
        return self._scheduler.last_prefix(below)

    def load_prefixes(self, archive: PrefixArchive) -> None:
        """Fills the prefix store from an archive, before the first request."""
        self._scheduler.load_prefixes(archive)

    def save_prefixes(self, archive: PrefixArchive) -> None:
        """Saves the prefix store and the rows in an archive, behind the last request."""
        self._scheduler.save_prefixes(archive)

    def end(self, error: TapelineError) -> None:
        """Ends all answers, running and waiting, with an error."""
        self._scheduler.end(error)

    def figures(self) -> EngineFigures:
        """Returns figures of now. Any thread may call it."""
        return self._scheduler.figures()

    def _check(self, request: TokenRequest) -> None:
        check_pictures(request.pictures, request.prompt, self._image_token)
        longest = max((picture.stop - picture.start for picture in request.pictures if picture.whole), default=0)
        if longest > self._most_tokens:
            raise InputError(
                f"pictures: one has {longest} tokens, which run in one call; calls take at most {self._most_tokens}: "
                "export again with a larger sequence"
            )
        if request.pictures and request.prompt_logprobs is not None:
            raise InputError("`prompt_logprobs` runs a prompt token by token, which pictures are not: leave it out")
        if request.adapter is not None and not 1 <= request.adapter.number <= self._adapters:
            raise InputError(
                f"adapter {request.adapter.number}: the model takes {self._adapters} adapters: choose another, or none"
            )
        prompt, wanted = request.prompt, len(request.prompt) + request.max_new_tokens - 1
        if not len(prompt):
            raise InputError("the prompt has no token: give at least one")
        bad = [token_id for token_id in (min(prompt), max(prompt)) if not 0 <= token_id < self.vocabulary]
        if bad:
            raise InputError(f"token id {bad[0]} of the prompt: expected 0 to {self.vocabulary - 1}")
        if wanted > self.capacity:
            raise InputError(
                f"a prompt of {len(prompt)} tokens and {request.max_new_tokens} new ones need {wanted} positions, and "
                f"{self.capacity} are there: shorten the prompt, or ask for fewer new tokens"
            )

    def _made_anew(self, failure: ModelFailedError) -> ModelRunner:
        if self._remake is None:
            raise EngineClosedError(f"the engine has closed: {failure}") from failure
        try:
            return self._remake()
        except Exception as error:
            raise EngineClosedError(
                f"the engine has closed: {failure}, and the model could not be made anew ({error})"
            ) from error
