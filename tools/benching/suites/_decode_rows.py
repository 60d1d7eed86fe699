"""Rows of the suite ``decode``: exports of one model, by the bits of their weights, each beside the peer's."""

from dataclasses import dataclass
from pathlib import Path
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
        beside: another row of the group, and how many times as fast a step is to be.
        stored: exported from the peer's file, whose bits it keeps; only its speed is looked at.
        own_code: compiled without the tuning spec and kernels: only its speed is looked at.
    """

    name: str
    flags: tuple[str, ...]
    peer: str | None = None
    decode: float | None = None
    prefill: float | None = None
    share: float | None = None
    nmse: float | None = None
    beside: tuple[str, float] | None = None
    stored: bool = False
    own_code: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Rows and peers that take turns.

    Attributes:
        bits: of the weights, for titles.
        rows: ours.
        peers: types of GGUF files.
        file: GGUF file of a real model, which all of them run; one of each type is made of random weights where None.
    """

    bits: str
    rows: tuple[Row, ...]
    peers: tuple[str, ...]
    file: Path | None = None


REFERENCE: Final = "f32"  # whose logits the others' are compared with: it comes first

_Q8_0: Final = Row(
    "q8_0",
    ("--dtype=bf16", "--quantize=q8_0"),
    peer="Q8_0",
    decode=1.0,
    prefill=1.2,
    share=0.85,
    nmse=1e-3,
    beside=("q8_0, x in 8 bits", 0.97),
)
_Q4_0: Final = Row(
    "q4_0",
    ("--dtype=bf16", "--quantize=q4_0"),
    peer="Q4_0",
    decode=1.0,
    prefill=1.2,
    share=0.85,
    beside=("q4_0, x in 8 bits", 0.97),
)


def _rounded(row: Row) -> Row:
    """Returns the same export with activations rounded to 8 bits."""
    return Row(f"{row.name}, x in 8 bits", (*row.flags, "--activations=q8"), peer=row.peer)


def _stored(kind: str) -> Group:
    """Returns the group of a file whose matrices are all of one type."""
    row = Row(kind.lower(), ("--dtype=bf16",), peer=kind, decode=1.0, prefill=1.2, share=0.85, stored=True)
    return Group(kind, (row,), (kind,))


def group_of_file(path: Path) -> Group:
    """Returns the group of a GGUF file of a real model, exported as users export it."""
    return Group(path.stem, (Row(path.stem, (), peer="file", decode=1.2, prefill=1.0, stored=True),), ("file",), path)


STORED_TYPES: Final = (
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
)

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
    Group("Q8_0", (_Q8_0, _rounded(_Q8_0)), ("Q8_0",)),
    Group("Q4_0", (_Q4_0, _rounded(_Q4_0)), ("Q4_0",)),
    *(_stored(kind) for kind in STORED_TYPES),
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
    Group("Q8_0", (_Q8_0, _rounded(_Q8_0)), ("Q8_0",)),
    _stored("MXFP4"),
)
