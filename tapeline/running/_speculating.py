"""Speculation by prompt lookup, a draft model or the model's own head (docs/speculation.md)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from generation import PredictionHead, PromptLookup
from generation.engine import Drafting, DraftRows, OneRow
from lang_core import InputError
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle, sha256_of
from tapeline.runners import ENCODE, BundleModel, position_axes
from tapeline.text import TOKENIZER_FILE
from transformer_core import DRAFT

_LOOKUP: Final = "prompt_lookup"
HEAD: Final = "mtp"
"""Name of drafts by the model's own multi-token prediction head."""

_TOKENIZER: Final = TOKENIZER_FILE


@contextmanager
def speculating(
    bundle: Bundle,
    place: Place,
    speculate: str | None,
    draft: Path | None,
    most: int | None,
    model: Callable[[], BundleModel],
) -> Iterator[Drafting | None]:
    """Opens the drafting for a bundle without slots; None without speculation.

    Args:
        bundle: bundle that generates.
        place: engine and devices, also of the draft's.
        speculate: ``prompt_lookup``, ``prompt_lookup:N`` or ``mtp``.
        draft: bundle that drafts.
        most: largest number of tokens of a draft.
        model: returns the model that answers, which may have a multi-token prediction head.

    Raises:
        InputError: options contradict each other, the bundle cannot verify drafts, or the draft does not go with it.
    """
    if speculate is None and draft is None:
        if most is not None:
            raise InputError(f"draft_tokens={most} goes with `speculate` or `draft`")
        yield None
        return
    _check_lengths(bundle)
    if draft is None and speculate == HEAD:
        _check_head(bundle)
        yield Drafting(begin=lambda row, fresh: PredictionHead(model()), tokens=most)
        return
    if draft is None:
        longest = lookup_length(speculate or "")
        yield Drafting(begin=lambda row, fresh: PromptLookup(longest), tokens=most)
        return
    check_one_way(speculate, draft)
    drafting = Bundle(draft)
    check_draft(bundle, drafting)
    with open_session(drafting, place) as session:
        rows = DraftRows(lambda: OneRow(BundleModel(drafting, session)), states=_check_rings(drafting, most))
        yield Drafting(begin=rows, tokens=most)


def check_one_way(speculate: str | None, draft: Path | None) -> None:
    """Refuses two ways to get drafts by an InputError."""
    if speculate is not None and draft is not None:
        raise InputError(f"speculate={speculate} and draft={draft} are two ways to get drafts: give one of them")


def lookup_length(speculate: str) -> int:
    """Returns N of ``prompt_lookup:N``, 3 if it is not said; an InputError for anything else."""
    name, colon, number = speculate.partition(":")
    if name != _LOOKUP or (colon and not (number.isdecimal() and int(number) > 0)):
        raise InputError(
            f"speculate={speculate}: expected {_LOOKUP}, or {_LOOKUP}:N to look for the last N tokens, 1 or more, or "
            f"{HEAD} for the model's multi-token prediction head"
        )
    return int(number) if colon else 3


def _check_head(bundle: Bundle) -> None:
    """Refuses a bundle without the head."""
    names = [point.name for point in bundle.config.entry_points]
    if DRAFT not in names:
        raise InputError(
            f"speculate={HEAD}: {bundle.path} has the entry points {', '.join(names)}, and no {DRAFT} of a "
            f"multi-token prediction head: export a model that has one with entry_points=prefill,decode,verify,{DRAFT} "
            f"and verify_tokens=4"
        )


def _check_lengths(bundle: Bundle) -> None:
    """Refuses RoPE with length-dependent frequencies: T' tokens at once are not T' tokens one by one then."""
    model = bundle.config.model
    for rope in (model.get("rope"), model.get("local_rope")):
        scaling: dict[str, Any] = (rope or {}).get("scaling", {})
        changes = scaling.get("type") == "dynamic" or scaling.get("short_factors") != scaling.get("long_factors")
        length = scaling.get("trained", scaling.get("original_length", 0))
        if changes and model["max_sequence"] > length:
            raise InputError(
                f"{bundle.path}: beyond {length} tokens the model's RoPE ({scaling['type']}) depends on how many there "
                f"are, and a draft that is verified at once would not get the keys that its tokens get one by one: "
                f"export with max_sequence={length} or less, or generate without speculation"
            )


def check_draft(bundle: Bundle, draft: Bundle) -> None:
    """Refuses a draft with other tokens by an InputError."""
    if ENCODE in [point.name for point in draft.config.entry_points]:
        raise InputError(f"draft={draft.path}: the model has an encoder, which nothing is given to: take another")
    ours, theirs = (model.config.model["vocabulary"] for model in (bundle, draft))
    if ours != theirs:
        raise InputError(
            f"draft={draft.path}: its vocabulary has {theirs} tokens, that of {bundle.path} has {ours}: drafts need "
            f"the same tokens; take a smaller model of the same family"
        )
    if _tokenizer_hash(bundle) != _tokenizer_hash(draft):
        raise InputError(
            f"draft={draft.path}: its {_TOKENIZER} is not that of {bundle.path} (sha256 {_tokenizer_hash(draft)} and "
            f"{_tokenizer_hash(bundle)}): drafts need the same tokens; take a smaller model of the same family"
        )


def _tokenizer_hash(bundle: Bundle) -> str | None:
    """None without a tokenizer."""
    path = bundle.path / _TOKENIZER
    return sha256_of(path) if path.is_file() else None


def _check_rings(bundle: Bundle, most: int | None) -> bool:
    """Returns whether a draft has states; refuses more tokens than ring caches can go back by an InputError.

    A ring has the entries for as many tokens as prefill takes, and no more.
    """
    prefill = bundle.entry_point("prefill")
    caches = {argument.name: argument.spec for argument in prefill.arguments if argument.donated}
    chunk, capacity = prefill.arguments[0].spec.shape[1], bundle.config.model["max_sequence"]
    states = any(name.endswith("_state") for name in caches)
    if not states and None in position_axes(caches, capacity) and most is not None and most > chunk:
        raise InputError(
            f"draft_tokens={most}: {bundle.path} has ring caches, and takes back {chunk} tokens at most: ask for "
            "fewer, or export it with window_caches=whole"
        )
    return states
