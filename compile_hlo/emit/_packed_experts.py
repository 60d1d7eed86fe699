"""Emission of products with block-quantised weights of stacked experts: only the chosen experts' bytes are read."""

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper
from compile_hlo.emit._contract import product
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._packed import PLANE_BITS, bits_in_name, packed_factors
from compile_hlo.emit._slices import rows_of
from compile_hlo.emit._unpacking import unpacked
from lang_core import TensorSpec, f32


@emits("expert_block_product")
def _expert_block_product(e: Emitter, node: Node) -> None:
    planes, _, _, expert, weight = node.inputs
    encoding, dtype = node.attributes
    given, rows, count, columns = planes.shape
    groups, (experts, outputs, _) = expert.shape[0], weight.shape
    result = node.results[0].spec
    wide = TensorSpec(result.shape, f32)

    def body(
        inner: Emitter, planes: SsaValue, scale: SsaValue, _: SsaValue, expert: SsaValue, weight: SsaValue
    ) -> list[str]:
        chosen = rows_of(inner, weight, expert)
        planes, scale = (_rows(inner, value) for value in (planes, scale))
        left, right = packed_factors(inner, planes, scale, chosen, encoding)
        left = _repeated(inner, left, given, groups)
        return [inner.convert(product(inner, left, right, ((2,), (2,), (0,), (0,)), wide), wide, dtype)]

    case = f"{encoding.name}.{dtype.name}.{given}of{groups}x{rows}x{experts}x{outputs}x{columns}"
    case += bits_in_name(PLANE_BITS * count)
    helper = Helper("expert_block_product", case, {"encoding": encoding.name})
    e.alias(node, call_helper(e, helper, e.values(node.inputs), (result,), body))


@emits("packed_expert_linear")
def _packed_expert_linear(e: Emitter, node: Node) -> None:
    """Writes the product of x as it is; see ``Overrides.exact_products``."""
    x, expert, weight = node.inputs
    encoding, dtype, _ = node.attributes
    given, rows, columns = x.shape
    groups, (experts, outputs, _) = expert.shape[0], weight.shape
    result = node.results[0].spec
    wide = TensorSpec(result.shape, f32)

    def body(inner: Emitter, x: SsaValue, expert: SsaValue, weight: SsaValue) -> list[str]:
        right = unpacked(inner, rows_of(inner, weight, expert), encoding)
        flat = _rows(inner, SsaValue(inner.convert(x.name, x.spec, f32), TensorSpec(x.spec.shape, f32)))
        left = _repeated(inner, flat, given, groups)
        return [inner.convert(product(inner, left, right, ((2,), (2,), (0,), (0,)), wide), wide, dtype)]

    case = f"{encoding.name}.{x.dtype.name}.{dtype.name}.{given}of{groups}x{rows}x{experts}x{outputs}x{columns}.exact"
    helper = Helper("expert_block_product", case, {"encoding": encoding.name})
    e.alias(node, call_helper(e, helper, e.values(node.inputs), (result,), body))


def _rows(e: Builder, value: SsaValue) -> SsaValue:
    """Writes a value [X, R, ..] as [X R, ..]."""
    given, rows, *rest = value.spec.shape
    spec = TensorSpec((given * rows, *rest), value.spec.dtype)
    return SsaValue(e.reshape(value.name, value.spec, spec.shape), spec)


def _repeated(e: Builder, x: SsaValue, given: int, groups: int) -> SsaValue:
    """Writes x [X R, K] as [G, R, K]: each of X in turn for as many groups as there are for it."""
    columns = x.spec.shape[-1]
    one, cube = (given, x.spec.shape[0] // given, columns), (given, groups // given, x.spec.shape[0] // given, columns)
    result = TensorSpec((groups, cube[2], columns), x.spec.dtype)
    name, spec = e.reshape(x.name, x.spec, one), TensorSpec(one, x.spec.dtype)
    if given < groups:
        several = TensorSpec(cube, x.spec.dtype)
        name = e.reshape(e.spread(name, spec, several, (0, 2, 3)), several, result.shape)
    return SsaValue(name, result)
