"""Emission of the error function, which StableHLO lacks, as a rational approximation.

f32 follows XLA (``EvaluatePolynomial`` of xla/hlo/builder/lib/math.cc, from Eigen): x P(x^2) / Q(x^2), 6 units in
the last place. f64 follows Cephes (S. L. Moshier, ndtr.c): that form below 1, and 1 - exp(-x^2) R(|x|) / S(|x|)
from there on, 4 units in the last place. Both were measured against math.erf; f16 and bf16 are computed in f32.
"""

from typing import Final

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec, f32

# From here on the nearest f32 is 1.
_ONE_F32: Final = 3.832506856900711
_P32: Final = (
    0.00022905065861350646,
    0.0034082910107109506,
    0.050955695062380861,
    0.18520832239976145,
    1.128379143519084,
)
_Q32: Final = (
    -1.1791602954361697e-7,
    0.000023547966471313185,
    0.0010179625278914885,
    0.014070470171167667,
    0.11098505178285362,
    0.49746925110067538,
    1.0,
)
# erf(6) is 1 - 2e-17, which is 1 in f64.
_ONE_F64: Final = 6.0
_P64: Final = (
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_Q64: Final = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_R64: Final = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_S64: Final = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)


@emits("erf")
def _erf(e: Emitter, node: Node) -> None:
    spec = node.results[0].spec
    wide = TensorSpec(spec.shape, spec.dtype.accumulation)
    x = e.operand(node.inputs[0], spec.shape, wide.dtype)
    result = _erf_f32(e, x, wide) if wide.dtype is f32 else _erf_f64(e, x, wide)
    e.alias(node, e.convert(result, wide, spec.dtype))


def _erf_f32(e: Emitter, x: str, spec: TensorSpec) -> str:
    """Writes the approximation, and 1 or -1 itself where that is the result: 1 + erf(x) must be 0 there."""
    inside = _clamped(e, x, _ONE_F32, spec)
    near = _clamped(e, _odd(e, inside, _P32, _Q32, spec), 1.0, spec)
    beyond = e.compare("LE", e.filled(_ONE_F32, spec), e.elementwise("abs", (x,), spec), spec)
    return e.select(beyond, _clamped(e, x, 1.0, spec), near, spec)


def _erf_f64(e: Emitter, x: str, spec: TensorSpec) -> str:
    one = e.filled(1.0, spec)
    near = _odd(e, _clamped(e, x, 1.0, spec), _P64, _Q64, spec)
    size = e.elementwise("abs", (_clamped(e, x, _ONE_F64, spec),), spec)
    decay = e.elementwise("negate", (e.elementwise("multiply", (size, size), spec),), spec)
    decay = e.elementwise("exponential", (decay,), spec)
    tail = _ratio(e, size, _R64, _S64, spec)
    far = e.elementwise("subtract", (one, e.elementwise("multiply", (decay, tail), spec)), spec)
    below = e.compare("LT", x, e.filled(0, spec), spec)
    far = e.select(below, e.elementwise("negate", (far,), spec), far, spec)
    return e.select(e.compare("LT", size, one, spec), near, far, spec)


def _odd(e: Emitter, x: str, above: tuple[float, ...], below: tuple[float, ...], spec: TensorSpec) -> str:
    """Writes x times a ratio of polynomials in x^2."""
    square = e.elementwise("multiply", (x, x), spec)
    return e.elementwise("multiply", (x, _ratio(e, square, above, below, spec)), spec)


def _ratio(e: Emitter, x: str, above: tuple[float, ...], below: tuple[float, ...], spec: TensorSpec) -> str:
    return e.elementwise("divide", (_polynomial(e, x, above, spec), _polynomial(e, x, below, spec)), spec)


def _polynomial(e: Emitter, x: str, coefficients: tuple[float, ...], spec: TensorSpec) -> str:
    """Writes a polynomial by Horner's scheme, the highest power's coefficient first."""
    result = e.filled(coefficients[0], spec)
    for coefficient in coefficients[1:]:
        result = e.elementwise("add", (e.elementwise("multiply", (result, x), spec), e.filled(coefficient, spec)), spec)
    return result


def _clamped(e: Emitter, x: str, bound: float, spec: TensorSpec) -> str:
    low, high = e.filled(-bound, spec), e.filled(bound, spec)
    return e.new(f"stablehlo.clamp {low}, {x}, {high} : {tensor_type(spec)}")
