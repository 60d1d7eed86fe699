"""Tiles of matrix-vector products on CPUs, as data: decoding one token is little else.

IREE's own tiles make such a product of 16-bit weights wait for arithmetic, not for memory: whole rows at a time, in
pieces of 128 columns, are 3 to 5 times as fast (docs/benchmarks.md). They are given in a tuning spec, a file that the
compiler reads beside the module: the module stays portable StableHLO.
"""

import itertools
from dataclasses import dataclass
from typing import Final

_SPEC: Final = """\
module @matvec_tiles attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @annotate(
      %op: !transform.any_op {{transform.readonly}}, %config: !transform.any_param {{transform.readonly}}) {{
    transform.annotate %op "compilation_info" = %config : !transform.any_op, !transform.any_param
    transform.yield
  }}
{matchers}
  transform.named_sequence @main(%module: !transform.any_op {{transform.consumed}}) -> (!transform.any_op)
      attributes {{iree_codegen.tuning_spec_entrypoint}} {{
    %done = transform.foreach_match in %module
      {pairs}
      : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }}
}}
"""

_MATCHER: Final = """\
  transform.named_sequence @{name}(%op: !transform.any_op {{transform.readonly}})
      -> (!transform.any_op, !transform.any_param) {{
    transform.match.operation_name %op ["linalg.generic"] : !transform.any_op
    transform.iree.match.has_no_lowering_config %op : !transform.any_op
    %b, %m, %n, %k = transform.iree.match.contraction %op, lhs_type = {kind}, rhs_type = {kind}, output_type = f32,
      indexing_maps = [affine_map<(n, k) -> (k)>, affine_map<(n, k) -> (n, k)>, affine_map<(n, k) -> (n)>]
      : !transform.any_op -> !transform.param<i64>
    %w = transform.get_operand %op[1] : (!transform.any_op) -> !transform.any_value
    transform.iree.match.dim_bounds %w[0], umin = {least}, umax = 1099511627776 : !transform.any_value
    transform.iree.match.dim_is_multiple_of %w[0], {rows} : !transform.any_value
    transform.iree.match.dim_is_multiple_of %w[1], {columns} : !transform.any_value
    %config = transform.param.constant #iree_codegen.compilation_info<
      lowering_config = #iree_cpu.lowering_config<
        distribution = [{rows}, 0], vector_common_parallel = [1, 0], vector_reduction = [0, {columns}]>,
      translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>>
      -> !transform.any_param
    transform.yield %op, %config : !transform.any_op, !transform.any_param
  }}"""


@dataclass(frozen=True, slots=True)
class MatvecTiles:
    """Which tiles ``W x`` gets, W [N, K] and x [K] of one type, summed in f32.

    Attributes:
        types: of the elements.
        rows: (rows that one thread takes at a time, the least N for which there are tiles enough to share out); N must
            be a multiple of the rows, and the first that fits is taken.
        columns: of K per step, of which K must be a multiple; the first that fits is taken.
    """

    types: tuple[str, ...] = ("f32", "bf16", "f16")
    rows: tuple[tuple[int, int], ...] = ((512, 2048), (352, 1408), (256, 1024), (128, 256), (64, 64), (16, 16))
    columns: tuple[int, ...] = (128, 64, 32)

    def tuning_spec(self) -> str:
        """MLIR's transform dialect, which IREE 3.13 reads by ``--iree-codegen-tuning-spec-path``."""
        matchers, pairs = [], []
        for kind, (rows, least), columns in itertools.product(self.types, self.rows, self.columns):
            name = f"{kind}_{rows}x{columns}"
            matchers.append(_MATCHER.format(name=name, kind=kind, rows=rows, least=least, columns=columns))
            pairs.append(f"@{name} -> @annotate")
        return _SPEC.format(matchers="\n".join(matchers), pairs=",\n      ".join(pairs))
