"""Rows of the suite ``decode``: exports of one model, by the bits of their weights, each beside the peer's."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """An export, and what is wanted of it.

    Attributes:
        name: of the case.
        flags: of tools:export that make it so.
        peer: the type of GGUF file that it is held against, one of its group's.
        decode: how many times as fast as the peer's a step is to be.
        prefill: the same of a prompt.
        share: of the memory's speed, in a step.
        nmse: of its logits to those of the row ``REFERENCE``; and no more than the peer's.
        own_code: compiled without the tuning spec and kernels: only its speed is looked at.
    """

    name: str
    flags: tuple[str, ...]
    peer: str | None = None
    decode: float | None = None
    prefill: float | None = None
    share: float | None = None
    nmse: float | None = None
    own_code: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Rows and peers that take turns.

    Attributes:
        bits: of the weights, for titles.
        rows: ours.
        peers: types of GGUF files.
    """

    bits: str
    rows: tuple[Row, ...]
    peers: tuple[str, ...]


REFERENCE: Final = "f32"  # whose logits the others' are compared with: it comes first

_Q8_0: Final = Row(
    "q8_0", ("--dtype=bf16", "--quantize=q8_0"), peer="Q8_0", decode=1.0, prefill=1.0, share=0.9, nmse=1e-3
)
_Q4_0: Final = Row("q4_0", ("--dtype=bf16", "--quantize=q4_0"), peer="Q4_0", decode=1.0, prefill=1.0)

GROUPS: Final = (
    Group("32 bits", (Row("f32", ("--dtype=f32",)),), ()),
    Group(
        "16 bits",
        (
            Row("bf16", ("--dtype=bf16",), peer="F16", decode=1.0, prefill=1.5, share=0.9),
            Row("f16", ("--dtype=f16",), peer="F16", decode=1.0, share=0.9),
            Row("bf16, the compiler's own code", ("--dtype=bf16",), own_code=True),
        ),
        ("F16", "BF16"),
    ),
    Group("Q8_0", (_Q8_0,), ("Q8_0",)),
    Group("Q4_0", (_Q4_0,), ("Q4_0",)),
)

TINY_GROUPS: Final = (
    Group("32 bits", (Row("f32", ("--dtype=f32",)),), ()),
    Group(
        "16 bits",
        (
            Row("bf16", ("--dtype=bf16",), peer="F16", decode=1.0, prefill=1.5, share=0.9, nmse=1.0),
            Row("bf16, the compiler's own code", ("--dtype=bf16",), own_code=True),
        ),
        ("F16",),
    ),
    Group("Q8_0", (_Q8_0,), ("Q8_0",)),
)
