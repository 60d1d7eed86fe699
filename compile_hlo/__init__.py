"""Lowering: recorded entry points in, StableHLO text out. Nothing here runs a program."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from compile_hlo._lower import LoweredFunction, LoweredModule, lower_module, record_entry_point
    from compile_hlo._text_file import text_file
    from compile_hlo._traced_name import traced_name
    from compile_hlo.passes import pruned_to_outputs, without_common_subexpressions, without_dead_code

export_lazily(__name__)
