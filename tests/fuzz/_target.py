"""The form of a fuzz target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from lang_core import TapelineError

Mutation = Callable[[bytes, Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Reader of untrusted input.

    Attributes:
        seeds: inputs to begin with; most of them are valid.
        run: reads one input. Returns True if it was accepted as valid. An exception other than ``errors`` is a finding.
        mutate: changes the structure of an input, such as values of its JSON; None if changes of bytes are enough.
        headed: True if the first line of an input names the reader of the rest; changes of bytes leave it as it is.
        errors: documented errors.
        cpu_seconds: CPU time of an input, beyond which it is a finding.
        grown_bytes: address space that the process may take on top of that which it has when it begins.
    """

    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], bool]
    mutate: Mutation | None = None
    headed: bool = False
    errors: tuple[type[Exception], ...] = (TapelineError,)
    cpu_seconds: float = 5.0
    grown_bytes: int = 2**31
