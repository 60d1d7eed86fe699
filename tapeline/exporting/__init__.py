"""What tools:export does, step by step."""

from tapeline.exporting._debug import dump_tags
from tapeline.exporting._dry_run import dry_run, prediction_text, write_prediction
from tapeline.exporting._export import run_export
from tapeline.exporting._options import (
    TARGETS,
    ExportOptions,
    entry_point_names,
    graph_forms,
    quantize,
    sequence,
    stablehlo_version,
    targets,
)
from tapeline.exporting._source import open_source

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
