"""Traces of a debug module, as the call that is dumped has them described."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from compile_hlo.emit import AFTER, BEFORE
from lang_core import DescriptionError, InputError, TensorSpec
from runtime.dump._dumper import DumpedCall


def traced_specs(call: DumpedCall, origin: str, key: str, sizes: Sequence[int]) -> tuple[TensorSpec, ...]:
    """Returns the shapes and dtypes of a trace's tensors.

    Args:
        call: call that is dumped.
        origin: file of the module, for messages.
        key: name of the trace in the module.
        sizes: bytes of each of its tensors.

    Raises:
        InputError: the tag does not exist, or has another size.
        DescriptionError: the kernel call does not exist, or its tensors have other sizes.
    """
    if key.startswith((BEFORE, AFTER)):
        return _kernel_specs(call, origin, key, sizes)
    info = call.tags.get(key)
    if info is None or [*sizes] != [info.spec.nbytes]:
        recorded = "no such tag" if info is None else f"{info.spec!r} there"
        raise InputError(
            f"{origin!r} traced {key!r} ({sum(sizes)} bytes), and the bundle's description has {recorded}: export "
            f"again with `dump_tags`"
        )
    return (info.spec,)


def add_traced(call: DumpedCall, key: str, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """Dumps the tensors of a trace, which is a tag's or those before or after a call of a kernel.

    Args:
        call: call that is dumped.
        key: name of the trace in the module.
        arrays: its tensors, of the shapes that ``traced_specs`` returns.

    Raises:
        InputError: the dump cannot be written.
    """
    if key.startswith((BEFORE, AFTER)):
        when, name = key.split(":", 1)
        call.kernel(name, "before" if f"{when}:" == BEFORE else "after", arrays)
    else:
        call.tag(key, arrays[0])


def _kernel_specs(call: DumpedCall, origin: str, key: str, sizes: Sequence[int]) -> tuple[TensorSpec, ...]:
    when, name = key.split(":", 1)
    site = call.sites.get(name)
    tensors = None if site is None else site.before if f"{when}:" == BEFORE else site.after
    if tensors is None or [*sizes] != [tensor.spec.nbytes for tensor in tensors]:
        recorded = "no such call" if tensors is None else f"{[tensor.spec for tensor in tensors]} there"
        raise DescriptionError(
            f"{origin!r} traced {len(sizes)} tensors {when} {name!r} ({[*sizes]} bytes), and the bundle's description "
            f"has {recorded}: export again with `dump_tags`"
        )
    return tuple(tensor.spec for tensor in tensors)
