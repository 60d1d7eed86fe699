"""The chain of tiers that chooses a configuration, and explains the choice."""

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, Generic, Never, TypeVar, overload

from autotune.caches import (
    FAILED,
    HEURISTIC,
    OVERLAYS,
    PINNED,
    REJECTED,
    TUNED,
    AutotuneData,
    CacheEntry,
    ConfigCache,
    Key,
    PersistentCache,
    Selection,
    cfg_name,
)
from autotune.kernel import (
    ConfigSelectionError,
    Invocation,
    Kernel,
    KernelError,
    Observer,
    candidates_of,
    checked_cfg,
    describe,
    heuristic_of,
    is_trial,
    needs_methods,
)
from autotune.selection._policy import OVERRIDDEN, AutotunePolicy, as_policy
from autotune.tuning import Tuner, tune_call, why_not_here
from lang_core import checked_choices

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")
Cfg_co = TypeVar("Cfg_co", covariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Event = Callable[..., object]
Passed = list[tuple[str, str]]  # tiers that had no configuration, each with the reason


@checked_choices
class ConfigSelectorChain(Generic[Cfg_co, Out_co]):
    """Chain of tiers: override, overlay, memory, persistent, autotune, heuristics; the first hit is taken.

    ``ConfigSelectorChain[Cfg, Out]`` is one for kernels with these configurations and results, to type checkers; one
    without types serves any kernel.

    Args:
        cache: cache in memory; a new one if None.
        policy: policy, or its name in ``POLICIES``.
        tuner: timer of candidates.
        persistent: cache on disk; nothing is read or written if None.
        persist_autotune: whether tuned configurations are written to the persistent cache.
        on_event: callback with each event's name and data: ``override``, ``overlay_hit``, ``cache_hit`` (with
            ``level``), ``autotune_start``, ``candidate`` (with ``measurement``), ``autotune_finish``,
            ``autotune_refused``, ``heuristics``, ``error``. If it raises, the first exception is reported as a
            ``CallbackWarning``, and the call goes on.
        forbid_reautotune: whether tuning a call for a second time in this process is an error.
    """

    def __init__(
        self,
        cache: ConfigCache[Any] | None = None,
        policy: AutotunePolicy | str | None = None,
        tuner: Tuner[Any] | None = None,
        persistent: PersistentCache[Any] | None = None,
        persist_autotune: bool = True,
        on_event: Event | None = None,
        forbid_reautotune: bool = True,
    ) -> None:
        self.cache: ConfigCache[Any] = ConfigCache() if cache is None else cache
        self._policy = as_policy(policy)
        self.tuner: Tuner[Any] = Tuner() if tuner is None else tuner
        self.persistent = persistent
        needs_methods(self.cache, "cache", "find", "store")
        needs_methods(self.tuner, "tuner", "autotune")
        if persistent is not None:
            needs_methods(persistent, "persistent", "find", "store")
        self.persist_autotune = persist_autotune
        self._observer = Observer(on_event, "on_event")
        self.forbid_reautotune = forbid_reautotune or policy == "forbid_reautotune"
        self._autotuned: set[Key] = set()
        self._tuning: Final = threading.RLock()

    @property
    def on_event(self) -> Event | None:
        """Callback with each event; if it raises, the first exception is reported, and the call goes on."""
        return self._observer.callback

    @on_event.setter
    def on_event(self, callback: Event | None) -> None:
        self._observer = Observer(callback, "on_event")

    @property
    def policy(self) -> AutotunePolicy:
        """Policy in force; ``policy_override`` changes it within a block."""
        overridden = OVERRIDDEN.get()
        return self._policy if overridden is None else overridden.get(self, self._policy)

    @policy.setter
    def policy(self, policy: AutotunePolicy | str) -> None:
        self._policy = as_policy(policy)

    @overload
    def choose(
        self: "ConfigSelectorChain[Never, Never]", inv: Invocation[Cfg, Out], kernel: Kernel[Cfg, Out]
    ) -> Cfg: ...
    @overload
    def choose(self: "ConfigSelectorChain[Cfg, Out]", inv: Invocation[Cfg, Out], kernel: Kernel[Cfg, Out]) -> Cfg: ...
    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """Returns the configuration for a call.

        Raises:
            ConfigSelectionError: all tiers lack one; the message gives the reason of each.
        """
        return self.select(inv, kernel).cfg

    def key(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Key:
        """Returns the key of a call."""
        return Key(inv.where().fingerprint, kernel.op, inv.make_key(kernel.key_builder, kernel.bucket), kernel.source)

    @overload
    def select(
        self: "ConfigSelectorChain[Never, Never]", inv: Invocation[Cfg, Out], kernel: Kernel[Cfg, Out]
    ) -> Selection[Cfg]: ...
    @overload
    def select(
        self: "ConfigSelectorChain[Cfg, Out]", inv: Invocation[Cfg, Out], kernel: Kernel[Cfg, Out]
    ) -> Selection[Cfg]: ...
    def select(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Selection[Any]:
        """Returns the configuration for a call, and the tier that had it.

        Raises:
            ConfigSelectionError: all tiers lack one; the message gives the reason of each.
        """
        key, policy = self.key(inv, kernel), self.policy
        if inv.override_cfg is not None:
            checked_cfg(kernel, inv.override_cfg, "was called with cfg=")
            self._emit("override", key, cfg=inv.override_cfg)
            return Selection(inv.override_cfg, "override", key)
        overlays = OVERLAYS.get()
        for overlay in reversed(overlays):
            if (cfg := overlay.get(key[:3])) is not None:
                self._emit("overlay_hit", key, cfg=cfg)
                return Selection(cfg, "overlay", key)
        entry = self.cache.find(key)
        if entry is not None and policy.accepts(entry.provenance):
            if self.on_event is not None:  # checked here, because this is the hot path
                self._emit("cache_hit", key, level="memory", cfg=entry.cfg, provenance=entry.provenance)
            return Selection(entry.cfg, "memory", key, entry)
        passed = [
            ("override", "no cfg= was given"),
            ("overlay", f"none of {len(overlays)} has the key" if overlays else "none is active"),
            ("memory", f"has a {entry.provenance} one, which does not suffice" if entry else "nothing under the key"),
        ]
        return self._elsewhere(inv, kernel, key, passed)

    def _elsewhere(
        self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], key: Key, passed: Passed
    ) -> Selection[Any]:
        entry = None if self.policy.tune_again else self._from_disk(kernel, key, passed)
        if entry is not None:
            self.cache.store(entry)
            self._emit("cache_hit", key, level="persistent", cfg=entry.cfg, provenance=entry.provenance)
            return Selection(entry.cfg, "persistent", key, entry, tuple(passed))
        entry = self._by_tuning(inv, kernel, key, passed)
        if entry is not None:
            return Selection(entry.cfg, "autotune", key, entry, tuple(passed))
        entry = self._by_heuristics(inv, kernel, key, passed)
        if entry is not None:
            return Selection(entry.cfg, "heuristics", key, entry, tuple(passed))
        self._emit("error", key, reason="no_config", passed=tuple(passed))
        tiers = "".join(f"\n  {tier}: {why}" for tier, why in passed)
        raise ConfigSelectionError(
            f"no configuration for {kernel.op} with {inv.specs()} on {key.device} (call {key.call}):{tiers}\n"
            f"pass cfg=, tune the call first, or allow heuristics"
        )

    def _from_disk(self, kernel: Kernel[Any, Any], key: Key, passed: Passed) -> CacheEntry[Any] | None:
        if self.persistent is None:
            passed.append(("persistent", "the chain has no persistent cache"))
            return None
        try:
            entry = self.persistent.find(key, kernel.cfg_type)
        except KernelError as error:
            passed.append(("persistent", str(error)))
            return None
        if entry is None:
            passed.append(("persistent", f"{self.persistent.path} {self.persistent.near(key)}"))
        return entry

    def _by_tuning(
        self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], key: Key, passed: Passed
    ) -> CacheEntry[Any] | None:
        policy = self.policy
        if not policy.tunes:
            passed.append(("autotune", "the policy does not allow it"))
            return None
        if reason := why_not_here(inv.args, inv.kwargs):
            self._emit("autotune_refused", key, reason=reason)
            passed.append(("autotune", reason))
            return None
        with self._tuning:  # a thread that waited here finds the other's result
            entry = self.cache.find(key)
            if entry is not None and entry.provenance in (TUNED, PINNED) and not policy.tune_again:
                return entry
            if key in self._autotuned and self.forbid_reautotune and not policy.tune_again:
                self._emit("error", key, reason="reautotune")
                raise ConfigSelectionError(
                    f"re-autotune of {kernel.op} (call {key.call}) is forbidden: it was tuned in this process before, "
                    f"and forbid_reautotune is set: keep the cache, or pass forbid_reautotune=False"
                )
            return self._tuned(inv, kernel, key, passed)

    def _tuned(
        self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], key: Key, passed: Passed
    ) -> CacheEntry[Any] | None:
        platform, policy = inv.where().platform, self.policy
        try:
            candidates = candidates_of(kernel, inv)
        except NotImplementedError as error:
            passed.append(("autotune", str(error)))
            return None
        self._emit("autotune_start", key, candidates=len(candidates), platform=platform, method=inv.method)
        failures = {} if policy.tune_again else self._failures(key)
        checks = {"validate_backward": policy.validate_backward, "bit_exact": policy.bit_exact}
        data = tune_call(self.tuner, inv, kernel, candidates, failures, **checks)
        self._note_failures(key, data)
        for measurement in data.measurements:
            self._emit("candidate", key, measurement=measurement)
        if data.best is None:
            passed.append(("autotune", f"none of {len(data.measurements)} candidates is good: {data.reasons()}"))
            return None
        entry = self.remember(inv, kernel, key, data.best.cfg, data)
        self._autotuned.add(key)
        self._emit("autotune_finish", key, cfg=data.best.cfg, data=data, platform=platform, method=inv.method)
        return entry

    def remember(
        self,
        inv: Invocation[Any, Any],
        kernel: Kernel[Any, Any],
        key: Key,
        cfg: Any,
        data: AutotuneData[Any] | None = None,
        provenance: str = TUNED,
    ) -> CacheEntry[Any]:
        """Stores an entry in memory and, unless it is heuristic, on disk."""
        measurements = () if data is None else tuple(data.measurements)
        name = f"{type(kernel).__module__}:{type(kernel).__qualname__}"
        entry = CacheEntry(key, cfg, provenance, measurements, asdict(inv.where()), describe(inv.specs()), name)
        self.cache.store(entry)
        if self.persistent is not None and self.persist_autotune and provenance != HEURISTIC:
            self.persistent.store(entry)
        return entry

    def _failures(self, key: Key) -> dict[str, str]:
        on_disk = {} if self.persistent is None else self.persistent.failures(key)
        return {**on_disk, **self.cache.failures(key)}

    def _note_failures(self, key: Key, data: AutotuneData[Any]) -> None:
        failed = {cfg_name(m.cfg): m.detail for m in data.measurements if m.status in (FAILED, REJECTED)}
        self.cache.note_failures(key, failed)
        if failed and self.persistent is not None and self.persist_autotune:
            self.persistent.note_failures(key, failed)

    def _by_heuristics(
        self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any], key: Key, passed: Passed
    ) -> CacheEntry[Any] | None:
        if not self.policy.guesses:
            passed.append(("heuristics", "the policy does not allow them"))
            return None
        try:
            cfg = heuristic_of(kernel, inv)
        except NotImplementedError as error:
            passed.append(("heuristics", str(error)))
            return None
        entry = self.remember(inv, kernel, key, cfg, provenance=HEURISTIC)
        self._emit("heuristics", key, cfg=cfg, platform=inv.where().platform, method=inv.method)
        return entry

    def clear(self, op_id: str | None = None) -> int:
        """Forgets all ops, or one: in memory, on disk, and that they were tuned; returns the number of entries."""
        gone = self.cache.clear(op_id)
        if self.persistent is not None:
            gone = max(gone, self.persistent.clear(op_id))
        kept = () if op_id is None else self._autotuned
        self._autotuned = {key for key in kept if op_id not in (key.op, key.op.rpartition("@v")[0])}
        return gone

    def _emit(self, event: str, key: Key, **data: Any) -> None:
        if self.on_event is not None and not is_trial():
            self._observer(event, device=key.device, op_id=key.op, call_key=key.call, **data)
