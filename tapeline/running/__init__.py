"""What tools:run and tools:generate do with a bundle."""

from tapeline.running._arrays import read_inputs, write_results
from tapeline.running._caller import let_workers_run
from tapeline.running._dump import dumper_of
from tapeline.running._model import BundleBatch, BundleModel, ScoringBundle, encoder_inputs, has_row_positions
from tapeline.running._output import GenerationOutput
from tapeline.running._prompt_cache import PromptCacheFile
from tapeline.running._prompt_memory import BundlePromptMemory
from tapeline.running._speculating import Speculating, speculating
from tapeline.running._stats import GenerationStats, dispatches

__all__ = [
    "BundleBatch",
    "BundleModel",
    "BundlePromptMemory",
    "GenerationOutput",
    "GenerationStats",
    "PromptCacheFile",
    "ScoringBundle",
    "Speculating",
    "dispatches",
    "dumper_of",
    "encoder_inputs",
    "has_row_positions",
    "let_workers_run",
    "read_inputs",
    "speculating",
    "write_results",
]
