"""The instruction that AVX-512 VNNI is for."""

_WORDS = "vector<16xi32>"
_BYTES = "vector<64xi8>"


def vnni_dot(total: str, unsigned: str, signed: str) -> str:
    """``vpdpbusd``: sixteen sums, to each of which four products of neighbouring bytes are added.

    Args:
        total: vector<16xi32>.
        unsigned: vector<64xi8>, whose bytes count as 0 to 255.
        signed: vector<64xi8>.
    """
    call = 'llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"'
    return f"{call}({total}, {unsigned}, {signed}) : ({_WORDS}, {_BYTES}, {_BYTES}) -> {_WORDS}"
