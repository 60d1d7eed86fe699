"""Drafters of the answers in a server's rows: prompt lookup, or a smaller model with rows of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from generation import Drafter, PromptLookup
from generation.engine import Drafting, DraftRows
from lang_core import InputError
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import SLOTS, BundleSlots, Invariance
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
    """Opens the drafting of a bundle with slots; arguments and errors as of ``row_drafting``."""
    check_one_way(speculate, draft)
    if draft is None:
        if speculate == HEAD:
            raise InputError(f"speculate={HEAD}: a multi-token prediction head works on one prompt, not on slots")
        longest = lookup_length(speculate or "")
        yield lambda row, fresh: PromptLookup(longest)
        return
    drafting = Bundle(draft)
    check_draft(bundle, drafting)
    _check_rows(bundle, drafting)
    with open_session(drafting, place) as session:
        # Its bits need not be those of other calls: a draft is a guess.
        yield DraftRows(lambda: BundleSlots(drafting, session, invariance=Invariance.CALLS))


def _check_rows(bundle: Bundle, drafting: Bundle) -> None:
    """Refuses a draft with fewer rows than the bundle, or with rows that cannot discard tokens, by an InputError."""
    model, wanted = drafting.config.model, bundle.config.model[SLOTS]
    if "pages" in model:
        raise InputError(f"draft={drafting.path} has pages, and a row of drafts reserves none: export it without")
    if SLOTS not in model or model[SLOTS] < wanted:
        raise InputError(
            f"draft={drafting.path} has {model.get(SLOTS, 0)} slots, and {bundle.path} has {wanted}: export the draft "
            f"with slots={wanted}"
        )
    if any(argument.name.endswith("_state") for argument in drafting.entry_point("prefill_row").arguments):
        raise InputError(
            f"draft={drafting.path}: its layers have states, which take no token back: choose a draft without"
        )
