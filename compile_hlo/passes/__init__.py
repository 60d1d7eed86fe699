"""Graph passes: each takes a valid graph and returns a valid graph. One file each."""

from compile_hlo.passes._cse import Subexpressions, without_common_subexpressions
from compile_hlo.passes._fusions import with_groups
from compile_hlo.passes._groups import Chain, Group, chain_of
from compile_hlo.passes._integer_products import LOWERED, block_value, is_block_value, with_integer_products
from compile_hlo.passes._prune import needed_nodes, pruned_to_outputs, without_dead_code
from compile_hlo.passes._row_writes import RowWrite, with_row_writes
