"""Policies: allowed steps of a chain of tiers without a stored configuration."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from autotune.caches import HEURISTIC
from autotune.kernel import KernelError
from lang_core import checked_choices, near_names

POLICIES: Final = ("autotune", "heuristics", "cached-only", "forbid_reautotune")
"""Names of the policies of selection."""


@checked_choices
@dataclass
class AutotunePolicy:
    """Permissions of a chain of tiers.

    Attributes:
        allow_autotune: whether candidates may be timed.
        allow_heuristics: whether the kernel's heuristic configuration may be taken.
        cache_miss_fallback: first resort if nothing is remembered; ``cached-only`` has none.
        validate_backward: whether to run the kernel's own gradient, too, once for each candidate, and compare it. It is
            not timed.
        bit_exact: whether a candidate must give the reference's result bit for bit.
        tune_again: whether to measure calls anew that are remembered as tuned.
    """

    allow_autotune: bool = True
    allow_heuristics: bool = True
    cache_miss_fallback: Literal["autotune", "heuristics", "cached-only"] = "autotune"
    validate_backward: bool = True
    bit_exact: bool = False
    tune_again: bool = False

    @property
    def tunes(self) -> bool:
        """True if a call without a remembered configuration is tuned."""
        return self.allow_autotune and self.cache_miss_fallback == "autotune"

    @property
    def guesses(self) -> bool:
        """True if a heuristic configuration may be taken."""
        return self.allow_heuristics and self.cache_miss_fallback != "cached-only"

    def accepts(self, provenance: str) -> bool:
        """Returns whether a remembered entry may be taken: a heuristic one may not if tuning is allowed."""
        if self.tune_again:
            return False
        return provenance != HEURISTIC or (self.guesses and not self.tunes)


def policy_named(name: str) -> AutotunePolicy:
    """Returns the policy of a name in ``POLICIES``.

    Raises:
        KernelError: the name is unknown.
    """
    if name not in POLICIES:
        raise KernelError(f"unknown policy {name!r}; available: {', '.join(POLICIES)}{near_names(name, POLICIES)}")
    if name in ("autotune", "forbid_reautotune"):
        return AutotunePolicy()
    if name == "heuristics":
        return AutotunePolicy(allow_autotune=False, cache_miss_fallback="heuristics")
    return AutotunePolicy(allow_autotune=False, allow_heuristics=False, cache_miss_fallback="cached-only")


def as_policy(policy: AutotunePolicy | str | None) -> AutotunePolicy:
    """Returns a policy given as such, by name, or not at all.

    Raises:
        KernelError: it is none of these.
    """
    if isinstance(policy, str):
        return policy_named(policy)
    if not isinstance(policy, AutotunePolicy | None):
        raise KernelError(f"policy={policy!r}: expected an AutotunePolicy, or one of {', '.join(POLICIES)}")
    return policy or AutotunePolicy()


class HasPolicy(Protocol):
    """Object with a policy that can be overridden."""

    @property
    def policy(self) -> AutotunePolicy:
        """Policy in force."""
        ...


OVERRIDDEN: ContextVar[Mapping[HasPolicy, AutotunePolicy] | None] = ContextVar("tapeline_policies", default=None)


@contextmanager
def policy_override(selector: HasPolicy, policy: str | None = None, **updates: Any) -> Iterator[AutotunePolicy]:
    """Changes a selector's policy within a ``with`` block, for this thread only.

    Args:
        selector: a ``ConfigSelectorChain``.
        policy: one of ``POLICIES``; the current policy if None.
        **updates: fields of ``AutotunePolicy`` to change.

    Raises:
        KernelError: the policy or a field is unknown.
    """
    before = selector.policy if policy is None else policy_named(policy)
    for name in updates:
        if not hasattr(before, name):
            raise KernelError(f"a policy has no field {name!r}{near_names(name, vars(before))}")
    changed = replace(before, **updates)
    token = OVERRIDDEN.set({**(OVERRIDDEN.get() or {}), selector: changed})
    try:
        yield changed
    finally:
        OVERRIDDEN.reset(token)
