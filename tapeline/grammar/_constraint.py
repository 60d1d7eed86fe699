"""Constraint on the tokens of one answer."""

import socket
import threading
from collections.abc import Iterable
from typing import Final

import numpy as np

from lang_core import InputError
from tapeline.grammar import _worker
from tapeline.grammar._messages import short
from tapeline.grammar._table import TokenTable
from tapeline.grammar._workers import ENDING, LIMITS, Worker, WorkerEndedError, WorkerPool

_NO_MORE: Final = "NoExtension"  # no byte may follow, and the text is not complete
_CONTRADICTION: Final = "the grammar allows no text that begins with the tokens so far: its parts contradict each other"
_ENDS_ONLY: Final = "the grammar allows only the text of a token that ends the answer: leave that text out"
TOO_HARD: Final = (
    f"the grammar is too complex: it needs more than {LIMITS.compile_cpu_seconds:.0f} s of CPU time to be compiled, "
    f"{LIMITS.mask_cpu_seconds:.0f} s for a token or {LIMITS.answer_cpu_seconds:.0f} s for an answer, or more than "
    f"{LIMITS.memory_bytes >> 20} MiB of memory: simplify it"
)
"""Message of a grammar whose worker has ended."""
_POST_SECONDS: Final = 0.002  # wait for a token's first reply, which usually comes in a tenth of that


class GrammarFamily:
    """Worker that has compiled the grammar of several answers; each answer has a worker that is forked from it.

    Args:
        worker: worker with the compiled grammar and nothing to do.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker: Final = worker
        self._lock: Final = threading.Lock()

    def fork(self) -> Worker:
        """Returns a worker that has compiled the grammar. Any thread may call it.

        Raises:
            OSError: the worker has ended, or a socket cannot be made.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                self._worker.fork(theirs)
        except BaseException:
            ours.close()
            raise
        return Worker(ours)

    def lost(self, worker: Worker, seconds: float) -> bool:
        """Returns True if a worker of ``fork`` has ended because it was never forked; see ``WorkerPool.lost``."""
        with self._lock:
            return not worker.replied and self._worker.ended(min(seconds, ENDING))


class GrammarConstraint:
    """Tokens that may come next in an answer; has the protocol ``AwaitedConstraint`` of the engine.

    A worker computes the masks. One thread at a time may use the constraint. An error of ``mask`` or ``accept`` is
    final: the grammar does not allow a continuation, or is too complex, and the answer must end with that error.

    Args:
        source: grammar in llguidance's own format, behind a salt (see ``_worker``).
        table: of the tokenizer.
        ends: ids that end an answer. They are allowed if the text so far is complete, and nowhere else.
        family: has compiled the grammar; None lets the constraint's worker do so, if it has not.
    """

    def __init__(
        self, source: bytes, table: TokenTable, ends: Iterable[int], family: GrammarFamily | None = None
    ) -> None:
        self._source: Final = source
        self._family = family
        self._forker: GrammarFamily | WorkerPool = table.workers
        self._first = False
        self._again = True
        self._table: Final = table
        self._ends: Final = sorted(ends)
        self._end_set: Final = frozenset(self._ends)
        self._worker: Worker | None = None
        self._begun = False
        self._unsettled = False
        self._mask: bytes | None = None
        self._complete = False
        self._stopped = False
        self._ended = False
        self._error: str | None = None

    def __del__(self) -> None:
        self.close()

    @property
    def finished(self) -> bool:
        """Returns whether the text is complete and cannot go on: only an end token may follow."""
        self._await_settled()
        return self._ended or self._stopped

    def mask(self, out: np.ndarray) -> None:
        """Writes which ids may come next.

        Args:
            out: bool [V]; V is the model's vocabulary, ids that the tokenizer does not have are False.

        Raises:
            InputError: the grammar does not allow a text that begins with the tokens so far, or is too complex.
        """
        out[:] = False
        complete = self._ended or self._fill(out)
        ends = [end for end in self._ends if end < len(out)]
        is_text = not complete and bool(out[ends].any())
        out[ends] = complete
        if is_text and not out.any():
            raise InputError(_ENDS_ONLY)

    def accept(self, token_id: int) -> None:
        """Notes the token that came next, an end token included.

        Raises:
            InputError: it was not allowed.
        """
        self.post(token_id)
        self._await_settled()
        if self._error is not None:
            raise InputError(self._refusal(token_id))

    def post(self, token_id: int) -> None:
        """Notes the token that came next. Does not wait until the worker has processed a token that is not an end.

        Raises:
            InputError: it was not allowed, and that is known.
        """
        if token_id in self._end_set:
            self._await_settled()
            if not (self._ended or self._complete):
                raise InputError(f"token {token_id} ends the answer before the text satisfies the grammar")
            self._ended = True
            return
        if not self._ended:
            self._begin()
            self.settled(LIMITS.reply_seconds)
        if self._ended or self._error is not None or self._worker is None:
            raise InputError(self._refusal(token_id))
        self._mask = None
        self._unsettled = True
        self._worker.send(_worker.TOKEN, token_id.to_bytes(4, "little"))
        self.settled(_POST_SECONDS)

    def settled(self, seconds: float) -> bool:
        """Returns True once ``finished`` is known after a token; waits up to some seconds for it."""
        while self._unsettled and self._error is None:
            if not self._receive(seconds):
                return False
        return True

    def ready(self, seconds: float) -> bool:
        """Returns True once ``mask`` returns at once; waits up to some seconds for it. The first call begins."""
        self._begin()
        while self._mask is None and self._error is None and not self._ended:
            if not self._receive(seconds):
                return False
        return True

    def close(self) -> None:
        """Gives the worker back; the constraint fails from now on, if it has begun."""
        self._family, self._forker = None, self._table.workers
        worker, self._worker = self._worker, None
        if worker is not None:
            self._table.workers.release(worker)

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = self._unsettled = True
        self._start()

    def _start(self) -> None:
        try:
            self._worker = self._forked() or self._table.workers.acquire()
        except OSError as error:
            self._error = str(failure(f"no process can be started: {error.strerror}"))
            return
        self._first = True
        self._worker.send(_worker.START, self._source)

    def _forked(self) -> Worker | None:
        """Returns a worker of the family; None if the family does not exist, or its worker has ended."""
        family, self._family, self._forker = self._family, None, self._table.workers
        if family is None:
            return None
        try:
            worker = family.fork()
        except OSError:
            return None
        self._forker = family
        return worker

    def _await_settled(self) -> None:
        self._begin()
        self.settled(2 * LIMITS.reply_seconds)  # an error comes before that

    def _receive(self, seconds: float) -> bool:
        """Takes a reply, and returns False if none comes in time."""
        worker = self._worker
        if worker is None:
            self._error = self._error or "the constraint was closed"
            return True
        try:
            reply = worker.receive(seconds)
        except WorkerEndedError:
            again, self._again = self._again and self._forker.lost(worker, seconds), False
            self._discard(None if again else TOO_HARD)
            if again:
                self._start()
            return True
        if reply is None:
            return False
        self._take(*reply)
        return True

    def _take(self, kind: bytes, payload: bytes) -> None:
        if self._first:
            self._table.workers.count(kind, payload)
            self._first, self._forker = False, self._table.workers
        if kind == _worker.RENEW:
            self._discard(None)
            self._start()
            return
        flags = payload[0] if kind in (_worker.SETTLED, _worker.MASK) else 0
        if not flags & _worker.ACCEPTED:
            self._error = payload[1:].decode(errors="replace")
            return
        self._complete = bool(flags & _worker.COMPLETE)
        self._stopped = bool(flags & _worker.STOPPED)
        self._unsettled = False
        if kind == _worker.MASK:
            self._mask = payload

    def _discard(self, error: str | None) -> None:
        """Ends the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        self._error = error

    def _fill(self, out: np.ndarray) -> bool:
        """Writes the mask of all but ends, and returns whether the text so far is complete."""
        self.ready(2 * LIMITS.reply_seconds)  # an error comes before that
        if self._error is not None:
            raise failure(self._error)
        assert self._mask is not None
        allowed = masked(self._mask, self._table)
        if allowed is None:
            return self._complete
        size = min(len(out), self._table.size)
        out[:size] = allowed[:size]
        return bool(allowed[self._table.end])

    def _refusal(self, token_id: int) -> str:
        if self._error == TOO_HARD:
            return TOO_HARD
        reason = short(self._error or "") or "the answer has ended"
        return f"token {token_id} is not allowed by the grammar here ({reason})"


def masked(payload: bytes, table: TokenTable) -> np.ndarray | None:
    """Returns a mask that a worker sent, bool [vocabulary and the end], or None if only an end may follow.

    Raises:
        InputError: the mask failed, or it allows nothing.
    """
    flags = payload[0]
    if not flags & _worker.ACCEPTED:
        raise failure(payload[1:].decode(errors="replace"))
    if len(payload) == 1:
        return None
    allowed = np.unpackbits(np.frombuffer(payload, np.uint8, offset=1), bitorder="little").view(np.bool_)
    if allowed[table.end] and not flags & _worker.COMPLETE:  # no token at all is written so, too
        raise InputError(_CONTRADICTION)
    return allowed


def failure(message: str) -> InputError:
    """Returns the error of a mask, by the message of the library or of the worker's end."""
    if message == TOO_HARD:
        return InputError(message)
    if _NO_MORE in message:
        return InputError(_CONTRADICTION)
    return InputError(f"the grammar is too complex to go on ({short(message)}): simplify it")
