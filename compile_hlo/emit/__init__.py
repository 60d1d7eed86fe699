"""Emission: graphs as StableHLO text, one rule per op.

The text is written as it is made and never kept.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from compile_hlo.emit._all_rules import RULES
    from compile_hlo.emit._block_call import BlockCall, layer_of, path_in_block
    from compile_hlo.emit._builder import Builder, SsaValue, Write
    from compile_hlo.emit._calls import call_helper, in_name
    from compile_hlo.emit._emitter import CHAINS, LEAVES, Emitter, emits, emits_composite
    from compile_hlo.emit._forms import ArgumentParameters, ExternalParameters, Form, InlineParameters
    from compile_hlo.emit._function import FunctionWriter, WrittenStretch
    from compile_hlo.emit._helpers import (
        Helper,
        helper_head,
        helper_kinds,
        helper_record,
        is_helper,
        read_helper,
        register_helper,
    )
    from compile_hlo.emit._module import ModuleWriter, emit_module
    from compile_hlo.emit._overrides import EXACT_PRODUCTS, NO_OVERRIDES, Overrides, Watcher
    from compile_hlo.emit._parameter_table import ParameterTable
    from compile_hlo.emit._partitioned import PARTITIONED
    from compile_hlo.emit._portable_text import portable_text
    from compile_hlo.emit._sites import AFTER, BEFORE, KernelSite, SiteTensor
    from compile_hlo.emit._types import dense, tensor_type

export_lazily(__name__)
