"""Instruction sets of CPUs as data, and the instructions that kernels call by name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError, load_plugins

_QUADS: Final = "vector<64xi8>"
_WORD_PAIRS: Final = "vector<32xi16>"
_WORDS_512: Final = "vector<16xi32>"
_SUMS: Final = "vector<16xf32>"
_BF16: Final = "vector<32xbf16>"
_BYTES: Final = "vector<32xi8>"
_PAIRS: Final = "vector<16xi16>"
_WORDS: Final = "vector<8xi32>"


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """Instructions that kernels are written for.

    Attributes:
        name: field of ``CpuKernels`` that turns its kernels on, or a name among ``CpuKernels.registered``.
        features: features that a CPU must have, as /proc/cpuinfo spells them.
    """

    name: str
    features: frozenset[str]


_AVX2: Final = frozenset({"avx2", "fma", "f16c"})
_AVX512: Final = _AVX2 | {"avx512f", "avx512bw", "avx512vl"}
INSTRUCTION_SETS: Final = (
    InstructionSet("vnni", _AVX512 | {"avx512_vnni"}),
    InstructionSet("bf16", _AVX512 | {"avx512_bf16"}),
    InstructionSet("avx512", _AVX512),
    InstructionSet("fma", _AVX2),
)

_NAME: Final = re.compile(r"[a-z][a-z0-9_.]*")
_REGISTERED: Final[dict[str, InstructionSet]] = {}

# Bytes that kernels for one token prefetch ahead. On an EPYC twice 4 KiB is 8 % slower than this, half of it as fast.
PREFETCH_DISTANCE: Final = 6912
# The same by the beginning of a CPU's model name. AMD's prefetchers follow a row by themselves: asking costs 4 % of a
# step in bf16.
_PREFETCH_DISTANCES: Final = (("AMD", 0),)
PREFETCH_CANDIDATES: Final = (0, 3456, PREFETCH_DISTANCE, 10368)
"""Distances worth a try where the default of a CPU is in doubt; powers of two are not among them."""


def register_instruction_set(name: str, features: Iterable[str]) -> InstructionSet:
    """Registers and returns an instruction set; other packages may register further ones.

    Args:
        name: name by which kernels are registered for it.
        features: features that a CPU must have, as /proc/cpuinfo spells them.

    Raises:
        ConfigError: the name is malformed or taken, or features are missing.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"instruction set {name!r}: the name begins with a lower-case letter, and has these, digits, '_' and '.' "
            f"alone"
        )
    if name in (*_REGISTERED, *(instructions.name for instructions in INSTRUCTION_SETS)):
        raise ConfigError(f"instruction set {name!r} is registered already: a name stands for one set of features")
    wanted = frozenset(features)
    if not wanted:
        raise ConfigError(
            f"instruction set {name!r}: name the features that a CPU must have; a kernel for any CPU needs no set"
        )
    instructions = _REGISTERED[name] = InstructionSet(name, wanted)
    return instructions


def instruction_sets() -> tuple[InstructionSet, ...]:
    """Returns all instruction sets: this package's, then those that were registered.

    Raises:
        PluginError: an installed plugin cannot be loaded.
    """
    load_plugins()
    return (*INSTRUCTION_SETS, *_REGISTERED.values())


def available(features: Iterable[str]) -> dict[str, bool]:
    """Returns, by name, which instruction sets a CPU with these features has."""
    return {name: not missing for name, missing in missing_features(features).items()}


def missing_features(features: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns, by name of an instruction set, the features that a CPU with these ones lacks for its kernels.

    >>> missing_features(["avx2", "fma"])["fma"]
    ('f16c',)
    """
    present = frozenset(features)
    return {instructions.name: tuple(sorted(instructions.features - present)) for instructions in instruction_sets()}


def prefetch_distance(model: str) -> int:
    """Returns the default prefetch distance in bytes for a CPU of this model name; 0 for none."""
    distances = (distance for vendor, distance in _PREFETCH_DISTANCES if model.startswith(vendor))
    return next(distances, PREFETCH_DISTANCE)


def vnni_dot(total: str, unsigned: str, signed: str) -> str:
    """Returns ``vpdpbusd`` (AVX-512 VNNI): sixteen sums, to each of which four products of bytes are added.

    Args:
        total: vector<16xi32>.
        unsigned: vector<64xi8> of bytes from 0 to 255.
        signed: vector<64xi8>.
    """
    operands = f"{total}, {unsigned}, {signed}"
    return _call("avx512.vpdpbusd.512", operands, f"({_WORDS_512}, {_QUADS}, {_QUADS}) -> {_WORDS_512}")


def bf16_dot(total: str, left: str, right: str) -> str:
    """Returns ``vdpbf16ps`` (AVX512_BF16): sixteen f32 sums, to each of which two products of bf16 are added."""
    return _call("avx512bf16.dpbf16ps.512", f"{total}, {left}, {right}", f"({_SUMS}, {_BF16}, {_BF16}) -> {_SUMS}")


def word_dot(left: str, right: str) -> str:
    """Returns ``vpmaddwd`` (AVX-512BW): sixteen i32 sums of two products of neighbouring i16; both vector<32xi16>.

    If a CPU has VNNI, the compiler makes ``vpdpwssd`` of this and an addition.
    """
    return _call("avx512.pmaddw.d.512", f"{left}, {right}", f"({_WORD_PAIRS}, {_WORD_PAIRS}) -> {_WORDS_512}")


def byte_pairs_dot(unsigned: str, signed: str) -> str:
    """Returns ``vpmaddubsw`` (AVX-512BW): 32 saturated i16 sums of two products of neighbouring bytes.

    Args:
        unsigned: vector<64xi8> of bytes from 0 to 255.
        signed: vector<64xi8>.
    """
    return _call("avx512.pmaddubs.w.512", f"{unsigned}, {signed}", f"({_QUADS}, {_QUADS}) -> {_WORD_PAIRS}")


def words_permuted(table: str, numbers: str) -> str:
    """Returns ``vpermw`` (AVX-512BW): the entries of a table of 32 words that the low five bits of 32 words say."""
    return _call("avx512.permvar.hi.512", f"{table}, {numbers}", f"({_WORD_PAIRS}, {_WORD_PAIRS}) -> {_WORD_PAIRS}")


def scaled_by_power(values: str, exponents: str, mask: str, lanes: int) -> str:
    """Returns ``vscalefps`` (AVX-512VL): values times 2 to the power of whole exponents, four or eight f32.

    Args:
        values: f32 of ``lanes``.
        exponents: f32 of ``lanes``.
        mask: i8 of ones.
        lanes: 4 or 8.
    """
    kind = f"vector<{lanes}xf32>"
    operands = f"{values}, {exponents}, {values}, {mask}"
    return _call(f"avx512.mask.scalef.ps.{32 * lanes}", operands, f"({kind}, {kind}, {kind}, i8) -> {kind}")


def byte_dot(unsigned: str, signed: str) -> str:
    """Returns ``vpmaddubsw`` (AVX2): sixteen saturated i16 sums of two products of neighbouring bytes.

    Args:
        unsigned: vector<32xi8> of bytes from 0 to 255.
        signed: vector<32xi8>.
    """
    return _call("avx2.pmadd.ub.sw", f"{unsigned}, {signed}", f"({_BYTES}, {_BYTES}) -> {_PAIRS}")


def pair_dot(left: str, right: str) -> str:
    """Returns ``vpmaddwd`` (AVX2): eight i32 sums of two products of neighbouring i16; both are vector<16xi16>."""
    return _call("avx2.pmadd.wd", f"{left}, {right}", f"({_PAIRS}, {_PAIRS}) -> {_WORDS}")


def pairs_added(total: str, left: str, right: str) -> str:
    """Returns ``vpdpwssd`` (AVX-512 VNNI): sixteen i32 sums, to each of which two products of i16 are added.

    Args:
        total: vector<16xi32>.
        left: vector<32xi16>.
        right: vector<32xi16>.
    """
    kinds = f"({_WORDS_512}, {_WORD_PAIRS}, {_WORD_PAIRS}) -> {_WORDS_512}"
    return _call("avx512.vpdpwssd.512", f"{total}, {left}, {right}", kinds)


def with_sign(values: str, signs: str) -> str:
    """Returns ``vpsignb`` (AVX2): bytes, negated where ``signs`` are negative, 0 where they are 0."""
    return _call("avx2.psign.b", f"{values}, {signs}", f"({_BYTES}, {_BYTES}) -> {_BYTES}")


def bytes_looked_up(table: str, places: str) -> str:
    """Returns ``vpshufb`` (AVX2): bytes of a table of sixteen at places of four bits; both are vector<32xi8>.

    Args:
        table: the table twice, for each half of ``places``.
        places: bytes of 0 to 15.
    """
    return _call("avx2.pshuf.b", f"{table}, {places}", f"({_BYTES}, {_BYTES}) -> {_BYTES}")


def neighbours_added(left: str, right: str) -> str:
    """Returns ``vphaddd`` (AVX2): sums of two neighbours, by halves of vector<8xi32>, those of ``left`` first."""
    return _call("avx2.phadd.d", f"{left}, {right}", f"({_WORDS}, {_WORDS}) -> {_WORDS}")


def _call(name: str, operands: str, kinds: str) -> str:
    return f'llvm.call_intrinsic "llvm.x86.{name}"({operands}) : {kinds}'
