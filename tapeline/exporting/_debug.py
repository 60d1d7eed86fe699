"""Debug module beside the module."""

from collections.abc import Sequence

from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ExternalParameters, Form, Write
from lang_core import EntryPoint, TagSelection


def lower_debug(entry_points: Sequence[EntryPoint], write: Write, form: Form, globs: Sequence[str]) -> LoweredModule:
    """Writes the debug module's text: flat, without block functions, so that every tensor has its layer's name.

    If a glob matches tensors of kernels, each entry point exists twice: with tags, which may split a kernel, and as
    ``kernels.<name>``.

    Raises:
        InputError: a glob matches neither a tag nor a tensor of a kernel.
    """

    def lower(write: Write, form: Form, trace_kernels: bool) -> LoweredModule:
        selection = TagSelection(globs)
        return lower_module(
            entry_points,
            write,
            form,
            streaming=True,
            block_functions=False,
            tags=selection,
            trace_kernels=trace_kernels,
        )

    first = lower(lambda _: None, ExternalParameters(), True)
    return lower(write, form, any(function.sites for function in first.traced))
