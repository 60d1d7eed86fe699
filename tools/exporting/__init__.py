"""What tools:export does, step by step."""

from tools.exporting._debug import dump_tags
from tools.exporting._dry_run import dry_run, prediction_text, write_prediction
from tools.exporting._export import run_export
from tools.exporting._options import (
    TARGETS,
    ExportOptions,
    entry_point_names,
    graph_forms,
    quantize,
    sequence,
    stablehlo_version,
    targets,
)
from tools.exporting._source import open_source

__all__ = [
    "TARGETS",
    "ExportOptions",
    "dump_tags",
    "dry_run",
    "entry_point_names",
    "graph_forms",
    "open_source",
    "prediction_text",
    "quantize",
    "run_export",
    "sequence",
    "stablehlo_version",
    "targets",
    "write_prediction",
]
