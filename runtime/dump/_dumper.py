"""Chooses the tensors of a call that go into a dump, by its level."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np

from compile_dag import TagInfo
from compile_hlo.emit import KernelSite
from lang_core import DescriptionError, checked_choices
from runtime.dump._record import TensorLabel
from runtime.dump._writer import DumpTotals, DumpWriter

Array = np.ndarray[Any, Any]

TAGS_ONLY: Final = 1
ALL: Final = 2
FIGURES_OF_ALL: Final = 3
LEVELS: Final = (TAGS_ONLY, ALL, FIGURES_OF_ALL)
"""Levels of a dump (docs/dump.md)."""


class CallDumper(Protocol):
    """Maker of the dumps of calls."""

    def call(self, entry_point: str) -> "DumpedCall":
        """Begins a call."""
        ...


class Dumper:
    """Counter of a dump's calls.

    Args:
        writer: receiver of the tensors.
        tags: tags that are dumped, by entry point.
        sites: calls of kernels that are dumped, by entry point; at level 1 none is.
    """

    def __init__(
        self,
        writer: DumpWriter,
        tags: Mapping[str, Sequence[TagInfo]],
        sites: Mapping[str, Sequence[KernelSite]] | None = None,
    ) -> None:
        self.writer: Final = writer
        self._tags: Final = {entry_point: {tag.name: tag for tag in infos} for entry_point, infos in tags.items()}
        chosen = {} if sites is None or writer.level == TAGS_ONLY else sites
        self.sites: Final = {entry_point: {site.name: site for site in calls} for entry_point, calls in chosen.items()}
        self._step = 0

    @property
    def totals(self) -> DumpTotals:
        """Totals so far."""
        return self.writer.totals

    def call(self, entry_point: str) -> "DumpedCall":
        """Begins the next call."""
        self._call = DumpedCall(
            self.writer,
            self._step,
            entry_point,
            self._tags.get(entry_point, {}),
            self.sites.get(entry_point, {}),
        )
        self._step += 1
        return self._call

    def kernels(self) -> "KernelDumper":
        """Returns the dumper of a second function that computes the same call, for tensors of kernels."""
        return KernelDumper(self)

    @property
    def present(self) -> "DumpedCall":
        """Call that was begun last."""
        return self._call


class KernelDumper:
    """Dumper of the tensors of kernels, which come from a function of their own beside the call that is dumped."""

    def __init__(self, dumper: Dumper) -> None:
        self._dumper: Final = dumper

    def call(self, entry_point: str) -> "DumpedCall":
        """Returns the call that is being dumped, without its arguments and results."""
        del entry_point
        return self._dumper.present.inside()


class DumpedCall:
    """Dump of one call of an entry point: of its arguments, then its tags as they come, then its results.

    Attributes:
        wants_arguments: True if the level has arguments and results.
        tags: tags of the entry point, by name.
        sites: calls of kernels, by name.
    """

    def __init__(
        self,
        writer: DumpWriter,
        step: int,
        entry_point: str,
        tags: Mapping[str, TagInfo],
        sites: Mapping[str, KernelSite],
    ) -> None:
        self._writer: Final = writer
        self._step: Final = step
        self._entry_point: Final = entry_point
        self._met: Final[dict[str, int]] = {}
        self.tags: Final = tags
        self.sites: Final = sites
        self.wants_arguments = writer.level != TAGS_ONLY
        self._traced: Final[dict[tuple[str, str], int]] = {}

    def inside(self) -> "DumpedCall":
        """Returns the dump of the same call's kernels alone."""
        call = DumpedCall(self._writer, self._step, self._entry_point, {}, self.sites)
        call.wants_arguments = False
        return call

    @checked_choices
    def kernel(self, name: str, when: Literal["before", "after"], arrays: Sequence[Array]) -> None:
        """Adds the tensors of a kernel's call.

        Args:
            name: name of the call, one of ``sites``.
            when: ``before`` for the tensor arguments, ``after`` for the results.
            arrays: all of them, in order.

        Raises:
            DescriptionError: their number, shapes or dtypes are not those of the kernel's signature.
        """
        site = self.sites[name]
        tensors = site.before if when == "before" else site.after
        actual = [(array.shape, array.dtype) for array in arrays]
        if actual != [(tensor.spec.shape, tensor.spec.dtype.numpy) for tensor in tensors]:
            raise DescriptionError(
                f"call {name!r} of kernel {site.kernel!r}: {when} it the signature {site.signature} has "
                f"{[tensor.spec for tensor in tensors]}, found {[f'{dtype}{list(shape)}' for shape, dtype in actual]}"
            )
        iteration = self._traced.get((name, when), 0)
        self._traced[name, when] = iteration + 1
        for tensor, array in zip(tensors, arrays, strict=True):
            if tensor.selected:
                label = TensorLabel(
                    step=self._step,
                    entry_point=self._entry_point,
                    name=tensor.name,
                    direction=tensor.direction,
                    when=when,
                    iteration=iteration,
                    module_path=site.module_path,
                    line=site.line,
                    kernel=site.kernel,
                    call_site=site.call_site,
                    layer=site.layer,
                )
                self._writer.add(label, array, payload=self._writer.level == ALL)

    def check_kernels(self) -> None:
        """Refuses a call in which a kernel's tensors were not there once before and once after each of its calls.

        Raises:
            DescriptionError: there is such a kernel.
        """
        for name, site in self.sites.items():
            rounds = max(self._traced.get((name, when), 0) for when in ("before", "after")) if site.in_region else 1
            for when, tensors in (("before", site.before), ("after", site.after)):
                count = self._traced.get((name, when), 0)
                if count != (rounds if tensors else 0):
                    raise DescriptionError(
                        f"call {name!r} of kernel {site.kernel!r}: its tensors {when} the call came {count} times, "
                        f"expected {rounds if tensors else 0}: the debug module is not the one that is described"
                    )

    @checked_choices
    def argument(self, name: str, array: Array, *, donated: bool) -> None:
        """Adds an argument, before the call; INOUT if it is donated."""
        if self.wants_arguments:
            self._add(name, array, "INOUT" if donated else "IN", "before")

    @checked_choices
    def result(self, name: str, array: Array, *, aliased: bool) -> None:
        """Adds a result, after the call; INOUT if it lies in the buffer of a donated argument."""
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
        """Adds a tagged tensor with a name in ``tags``; in a loop it is added once per iteration."""
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
