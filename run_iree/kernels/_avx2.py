"""Instructions of AVX2 that multiply integers: bytes to i16, i16 to i32."""

_BYTES = "vector<32xi8>"
_PAIRS = "vector<16xi16>"
_WORDS = "vector<8xi32>"


def byte_dot(unsigned: str, signed: str) -> str:
    """``vpmaddubsw``: sixteen sums of two products of neighbouring bytes, i16; what is too large becomes the largest.

    Args:
        unsigned: vector<32xi8>, whose bytes count as 0 to 255.
        signed: vector<32xi8>.
    """
    return _call("pmadd.ub.sw", f"{unsigned}, {signed}", f"({_BYTES}, {_BYTES}) -> {_PAIRS}")


def pair_dot(left: str, right: str) -> str:
    """``vpmaddwd``: eight sums, vector<8xi32>, of two products of neighbouring i16; both are vector<16xi16>."""
    return _call("pmadd.wd", f"{left}, {right}", f"({_PAIRS}, {_PAIRS}) -> {_WORDS}")


def with_sign(values: str, signs: str) -> str:
    """``vpsignb``: bytes, negative where those of ``signs`` are, 0 where they are 0; both are vector<32xi8>."""
    return _call("psign.b", f"{values}, {signs}", f"({_BYTES}, {_BYTES}) -> {_BYTES}")


def neighbours_added(left: str, right: str) -> str:
    """``vphaddd``: sums of two neighbours, of both halves of vector<8xi32>; in a half those of ``left`` come first."""
    return _call("phadd.d", f"{left}, {right}", f"({_WORDS}, {_WORDS}) -> {_WORDS}")


def _call(name: str, operands: str, kinds: str) -> str:
    return f'llvm.call_intrinsic "llvm.x86.avx2.{name}"({operands}) : {kinds}'
