"""Chooses the tensors of a call that go into a dump, by its level."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from compile_dag import TagInfo
from lang_core import checked_choices
from run_iree.dump._record import TensorLabel
from run_iree.dump._writer import DumpTotals, DumpWriter

Array = np.ndarray[Any, Any]

TAGS_ONLY: Final = 1
ALL: Final = 2
FIGURES_OF_ALL: Final = 3
LEVELS: Final = (TAGS_ONLY, ALL, FIGURES_OF_ALL)


class Dumper:
    """Counter of a dump's calls.

    Args:
        writer: receiver of the tensors.
        tags: tags that are dumped, by entry point.
    """

    def __init__(self, writer: DumpWriter, tags: Mapping[str, Sequence[TagInfo]]) -> None:
        self._writer: Final = writer
        self._tags: Final = {entry_point: {tag.name: tag for tag in infos} for entry_point, infos in tags.items()}
        self._step = 0

    @property
    def totals(self) -> DumpTotals:
        """Totals so far."""
        return self._writer.totals

    def call(self, entry_point: str) -> "DumpedCall":
        """Begins the next call."""
        call = DumpedCall(self._writer, self._step, entry_point, self._tags.get(entry_point, {}))
        self._step += 1
        return call


class DumpedCall:
    """Dump of one call of an entry point: of its arguments, then its tags as they come, then its results.

    Attributes:
        wants_arguments: True if the level has arguments and results.
        tags: tags of the entry point, by name.
    """

    def __init__(self, writer: DumpWriter, step: int, entry_point: str, tags: Mapping[str, TagInfo]) -> None:
        self._writer: Final = writer
        self._step: Final = step
        self._entry_point: Final = entry_point
        self._met: Final[dict[str, int]] = {}
        self.tags: Final = tags
        self.wants_arguments: Final = writer.level != TAGS_ONLY

    @checked_choices
    def argument(self, name: str, array: Array, *, donated: bool) -> None:
        """Adds an argument, before the call; INOUT where it is donated."""
        if self.wants_arguments:
            self._add(name, array, "INOUT" if donated else "IN", "before")

    @checked_choices
    def result(self, name: str, array: Array, *, aliased: bool) -> None:
        """Adds a result, after the call; INOUT where it lies in the buffer of a donated argument."""
        if self.wants_arguments:
            self._add(name, array, "INOUT" if aliased else "OUT", "after")

    def _add(self, name: str, array: Array, direction: Any, when: Any) -> None:
        label = TensorLabel(
            step=self._step,
            entry_point=self._entry_point,
            name=name,
            direction=direction,
            when=when,
            op="placeholder" if when == "before" else None,
        )
        self._writer.add(label, array, payload=self._writer.level == ALL)

    def tag(self, name: str, array: Array) -> None:
        """Adds a tagged tensor, whose name is one of ``tags``; in a loop it comes once per iteration."""
        info = self.tags[name]
        iteration = self._met.get(name, 0)
        self._met[name] = iteration + 1
        label = TensorLabel(
            step=self._step,
            entry_point=self._entry_point,
            name=name,
            direction="TAG",
            when="during",
            iteration=iteration,
            module_path=info.module_path,
            op=info.op,
            line=info.line,
        )
        self._writer.add(label, array, payload=True)
