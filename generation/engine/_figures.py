"""Figures of the engine, for metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from generation.engine._times import PartTimes


@dataclass(frozen=True, kw_only=True)
class EngineFigures:
    """Figures of the engine at one time; totals count since it was made.

    Attributes:
        running: requests that have a row.
        waiting: requests that wait for one.
        slots: rows.
        cache_usage: part of all positions, or pages, that running requests hold, 0 to 1.
        prefix_queries: total tokens of prompts for which the rows and the store were searched.
        prefix_hits: total tokens of these that were reused.
        prompt_tokens: total tokens of prompts that were run; reused ones are not among them.
        generated_tokens: total new tokens.
        draft_tokens: total tokens of drafts.
        accepted_tokens: total tokens of drafts that became tokens of answers.
        ended: total ended requests by reason.
        failures: calls of the model that raised.
        store_bytes: bytes of the prefix store.
        store_budget: bytes that it may take.
        up: 1 while the engine's thread runs, 0 once it has ended.
        stalled_seconds: time since the engine's last progress; 0 while it is idle.
        tick_seconds: histograms of the time that ticks and their parts took, by part.
    """

    running: int
    waiting: int
    slots: int
    cache_usage: float
    prefix_queries: int
    prefix_hits: int
    prompt_tokens: int
    generated_tokens: int
    draft_tokens: int
    accepted_tokens: int
    ended: Mapping[str, int]
    failures: int
    store_bytes: int
    store_budget: int
    up: int = 1
    stalled_seconds: float = 0.0
    tick_seconds: Mapping[str, PartTimes] = field(default_factory=dict[str, PartTimes])
