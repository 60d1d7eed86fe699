"""Drafters of the answers in a server's rows: prompt lookup, or a smaller model with rows of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from generation import Drafter, DraftModel, PromptLookup
from generation.engine import Drafting
from lang_core import InputError
from runtime import Session
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.running._invariance import Invariance
from tapeline.running._prompt_memory import BundlePromptMemory
from tapeline.running._row_model import RowModel
from tapeline.running._slots import SLOTS, BundleSlots
from tapeline.running._speculating import HEAD, check_draft, check_one_way, lookup_length

BeginDraft = Callable[[int, bool], Drafter]
"""Returns the drafter of a new answer in a row, by the row's index; True forgets what the row holds."""


@contextmanager
def row_drafting(
    bundle: Bundle, place: Place, speculate: str | None, draft: Path | None, tokens: int | None = None, rows: int = 1
) -> Iterator[Drafting | None]:
    """Opens the speculation of the answers in the rows of a bundle with slots; None without.

    Args:
        bundle: bundle that answers.
        place: engine and devices, also of the draft's.
        speculate: ``prompt_lookup`` or ``prompt_lookup:N``; None for none.
        draft: bundle with slots that drafts; None for none.
        tokens: largest number of tokens of a draft; None for as many as one call verifies.
        rows: answers that may run at once while drafts are made.

    Raises:
        InputError: options contradict each other, or the draft has other tokens, states, or too few slots.
        ConfigError: a number is out of its range.
    """
    if speculate is None and draft is None:
        if tokens is not None:
            raise InputError(f"draft_tokens={tokens} goes with `speculate` or `draft`")
        yield None
        return
    with _drafters(bundle, place, speculate, draft) as begin:
        yield Drafting(begin=begin, tokens=tokens, rows=rows)


@contextmanager
def _drafters(bundle: Bundle, place: Place, speculate: str | None, draft: Path | None) -> Iterator[BeginDraft]:
    """Opens what drafts for the rows of a bundle with slots; arguments and errors as of ``row_drafting``."""
    check_one_way(speculate, draft)
    if draft is None:
        if speculate == HEAD:
            raise InputError(f"speculate={HEAD}: a multi-token prediction head works on one prompt, not on slots")
        longest = lookup_length(speculate or "")
        yield lambda row, fresh: PromptLookup(longest)
        return
    drafting = Bundle(draft)
    check_draft(bundle, drafting)
    with open_session(drafting, place) as session:
        yield _DraftRows(bundle, drafting, session)


class _DraftRows:
    """Rows of a smaller model, each with a memory of what it holds."""

    def __init__(self, bundle: Bundle, drafting: Bundle, session: Session) -> None:
        self._drafting: Final = drafting
        self._session: Final = session
        self._make()
        if "pages" in drafting.config.model:
            raise InputError(f"draft={drafting.path} has pages, and a row of drafts reserves none: export it without")
        wanted = bundle.config.model[SLOTS]
        if len(self._rows) < wanted:
            raise InputError(
                f"draft={drafting.path} has {len(self._rows)} slots, and {bundle.path} has {wanted}: export the draft "
                f"with slots={wanted}"
            )
        if self._rows[0][0].recurrent:
            raise InputError(
                f"draft={drafting.path}: its layers have states, which take no token back: choose a draft without"
            )

    def __call__(self, row: int, fresh: bool) -> Drafter:
        if self._broken:
            self._make()
        model, memory = self._rows[row]
        if fresh:
            memory.forget()
        return _RowDrafter(self, model, memory)

    def broke(self) -> None:
        """Notes that a call has failed, which the caches were donated to."""
        self._broken = True

    def _make(self) -> None:
        # Its bits need not be those of other calls: a draft is a guess.
        slots = BundleSlots(self._drafting, self._session, invariance=Invariance.CALLS)
        models = [RowModel(slots, row) for row in range(slots.slots)]
        self._rows = [(model, BundlePromptMemory(model)) for model in models]
        self._broken = False


class _RowDrafter(DraftModel):
    def __init__(self, rows: _DraftRows, model: RowModel, memory: BundlePromptMemory) -> None:
        super().__init__(model, memory)
        self._all: Final = rows

    def propose(self, history: Sequence[int], count: int) -> list[int]:
        try:
            return super().propose(history, count)
        except BaseException:
            self._all.broke()
            raise
