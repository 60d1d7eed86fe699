"""CPU kernels of ``acme.softclip``, and the instruction set ``acme_rcp`` of the faster one.

tanh is a ratio of polynomials on [-7.9, 7.9], beyond which it is 1 in f32. Division is the slowest operation of it, so
CPUs with an instruction for reciprocals of twelve bits multiply by that, after one step of Newton's method.
"""

from functools import partial

from acme_models._softclip import HELPER
from run_iree.kernels import Buffer, CpuKernel, register_instruction_set, register_kernel

ACME_RCP = register_instruction_set("acme_rcp", ["avx"])

_LANES = 8
_VECTOR = f"vector<{_LANES}xf32>"
_LIMIT = 7.90531110763549805
# Coefficients of x^13, x^11, ... x and of x^6, x^4, ... 1, as in Eigen's tanh of floats.
_ABOVE = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_SHARE = 4096  # elements of a workgroup


def _horner(name, coefficients, square):
    """Returns lines that make ``%<name>``, a polynomial of a square by Horner's rule."""
    lines = [f"%{name}0 = arith.constant dense<{coefficients[0]:.17e}> : {_VECTOR}"]
    for i, coefficient in enumerate(coefficients[1:], 1):
        made = name if i == len(coefficients) - 1 else f"{name}{i}"
        lines += [
            f"%{name}_c{i} = arith.constant dense<{coefficient:.17e}> : {_VECTOR}",
            f"%{made} = math.fma %{name}{i - 1}, {square}, %{name}_c{i} : {_VECTOR}",
        ]
    return lines


def _divided():
    """Returns lines that make ``%tanh`` of ``%above`` and ``%below``, on any CPU."""
    return [f"%tanh = arith.divf %above, %below : {_VECTOR}"]


def _multiplied():
    """Returns the same lines for CPUs with ``vrcpps``, whose twelve bits one step of Newton's method doubles."""
    return [
        f'%near = llvm.call_intrinsic "llvm.x86.avx.rcp.ps.256"(%below) : ({_VECTOR}) -> {_VECTOR}',
        f"%product = arith.mulf %below, %near : {_VECTOR}",
        f"%rest = arith.subf %two, %product : {_VECTOR}",
        f"%reciprocal = arith.mulf %near, %rest : {_VECTOR}",
        f"%tanh = arith.mulf %above, %reciprocal : {_VECTOR}",
    ]


def _kernel(name, ratio, function):
    """Returns the kernel of a helper function ``acme_softclip``; None for what it is not for."""
    spec = function.arguments[0].spec
    if spec.dtype.name != "f32" or not spec.size or spec.size % _LANES:
        return None
    x, y = Buffer("x", spec.size, "f32"), Buffer("y", spec.size, "f32")
    limit = function.attributes["limit"]
    constants = {"two": 2, "limit": limit, "inverse": 1 / limit, "most": _LIMIT, "least": -_LIMIT}
    steps = [
        f"%given = vector.load %x[%i] : {x.memref}, {_VECTOR}",
        f"%scaled = arith.mulf %given, %inverse : {_VECTOR}",
        f"%bounded = arith.minimumf %scaled, %most : {_VECTOR}",
        f"%z = arith.maximumf %bounded, %least : {_VECTOR}",
        f"%square = arith.mulf %z, %z : {_VECTOR}",
        *_horner("odd", _ABOVE, "%square"),
        *_horner("below", _BELOW, "%square"),
        f"%above = arith.mulf %odd, %z : {_VECTOR}",
        *ratio(),
        f"%clipped = arith.mulf %tanh, %limit : {_VECTOR}",
        f"vector.store %clipped, %y[%i] : {y.memref}, {_VECTOR}",
    ]
    body = [
        *(f"%{key} = arith.constant dense<{value:.17e}> : {_VECTOR}" for key, value in constants.items()),
        f"%lanes = arith.constant {_LANES} : index",
        f"%share = arith.constant {_SHARE} : index",
        f"%all = arith.constant {spec.size} : index",
        "%first = arith.muli %workgroup, %share : index",
        "%after = arith.addi %first, %share : index",
        "%end = arith.minui %after, %all : index",
        "scf.for %i = %first to %end step %lanes {",
        *(f"  {step}" for step in steps),
        "}",
    ]
    return CpuKernel(name, (x, y), -(-spec.size // _SHARE), "\n".join(body))


register_kernel(HELPER, partial(_kernel, "acme-softclip", _divided))
register_kernel(HELPER, partial(_kernel, "acme-softclip-rcp", _multiplied), instruction_set="acme_rcp")
