"""What may be done where nothing is remembered."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from autotune.kernel import KernelError
from lang_core import near_names

POLICIES: Final = ("autotune", "heuristics", "cached-only", "forbid_reautotune")


@dataclass
class AutotunePolicy:
    """What may be done.

    Attributes:
        allow_autotune: whether candidates may be timed.
        allow_heuristics: whether the kernel's own guess will do where nothing was timed.
        cache_miss_fallback: what to do first where nothing is remembered; ``cached-only`` does nothing.
        validate_backward: whether to time and compare the kernel's own gradient, too.
        bit_exact: whether a candidate must give the reference's result bit for bit.
        tune_again: whether what is remembered as tuned is measured anew; used by ``tools:tune``.
    """

    allow_autotune: bool = True
    allow_heuristics: bool = True
    cache_miss_fallback: Literal["autotune", "heuristics", "cached-only"] = "autotune"
    validate_backward: bool = False
    bit_exact: bool = False
    tune_again: bool = False

    @property
    def tunes(self) -> bool:
        """Whether a call of which nothing is remembered is tuned."""
        return self.allow_autotune and self.cache_miss_fallback == "autotune"

    @property
    def guesses(self) -> bool:
        """Whether a heuristic configuration will do."""
        return self.allow_heuristics and self.cache_miss_fallback != "cached-only"


def policy_named(name: str) -> AutotunePolicy:
    """A policy of ``POLICIES``.

    Raises:
        KernelError: there is none of that name.
    """
    if name not in POLICIES:
        raise KernelError(f"unknown policy {name!r}: known are {', '.join(POLICIES)}{near_names(name, POLICIES)}")
    if name in ("autotune", "forbid_reautotune"):
        return AutotunePolicy()
    if name == "heuristics":
        return AutotunePolicy(allow_autotune=False, cache_miss_fallback="heuristics")
    return AutotunePolicy(allow_autotune=False, allow_heuristics=False, cache_miss_fallback="cached-only")


class HasPolicy(Protocol):
    """What a policy can be laid over."""

    @property
    def policy(self) -> AutotunePolicy:
        """What holds now."""
        ...


OVERRIDDEN: ContextVar[Mapping[HasPolicy, AutotunePolicy] | None] = ContextVar("tapeline_policies", default=None)


@contextmanager
def policy_override(selector: HasPolicy, policy: str | None = None, **updates: Any) -> Iterator[AutotunePolicy]:
    """Changes a selector's policy while a ``with`` block lasts, for this thread alone.

    Args:
        selector: a ``ConfigSelectorChain``.
        policy: one of ``POLICIES``.
        **updates: fields of ``AutotunePolicy``.

    Raises:
        KernelError: there is no such policy or field.
    """
    before = selector.policy if policy is None else policy_named(policy)
    for name in updates:
        if not hasattr(before, name):
            raise KernelError(f"a policy has no {name!r}{near_names(name, vars(before))}")
    changed = replace(before, **updates)
    token = OVERRIDDEN.set({**(OVERRIDDEN.get() or {}), selector: changed})
    try:
        yield changed
    finally:
        OVERRIDDEN.reset(token)
