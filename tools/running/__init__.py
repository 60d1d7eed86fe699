"""What tools:run and tools:generate do with a bundle."""

from tools.running._arrays import read_inputs, write_results
from tools.running._caller import let_workers_run
from tools.running._dump import dumper_of
from tools.running._model import BundleBatch, BundleModel, ScoringBundle, encoder_inputs, has_row_positions
from tools.running._output import GenerationOutput
from tools.running._prompt_cache import PromptCacheFile
from tools.running._prompt_memory import BundlePromptMemory
from tools.running._speculating import Speculating, speculating
from tools.running._stats import GenerationStats, dispatches

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
