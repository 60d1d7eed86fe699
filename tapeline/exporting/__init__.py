"""Export: a checkpoint in, a verified bundle out."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.exporting._adapters import with_adapters
    from tapeline.exporting._api import check_unnamed, export, predict_export
    from tapeline.exporting._auto import planned_source
    from tapeline.exporting._bundle_cache import cached_export, cached_export_early
    from tapeline.exporting._dry_run import dry_run, prediction_text, write_prediction
    from tapeline.exporting._export import run_export
    from tapeline.exporting._options import (
        CHOICES,
        RARE,
        TARGETS,
        ExportKeywords,
        ExportOptions,
        canonical_targets,
        check_names,
        option_texts,
    )
    from tapeline.exporting._predict import bundled_files
    from tapeline.exporting._replacing import default_output
    from tapeline.exporting._report import report_summary
    from tapeline.exporting._source import ModelSource, open_source

export_lazily(__name__)
