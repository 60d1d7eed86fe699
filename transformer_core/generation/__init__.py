"""Choosing the next token and knowing when to stop.

Axes: V vocabulary, C candidates (the tokens that no filter has removed yet).

>>> import numpy as np
>>> from transformer_core.generation import Sampler, SamplingConfig
>>> Sampler(SamplingConfig(), vocabulary_size=3)(np.array([0.5, 2.0, 1.0], np.float32), history=[])
1
"""

from transformer_core.generation._batch import CachedBatch, generate_batch
from transformer_core.generation._config import SamplingConfig
from transformer_core.generation._loop import CachedModel, Step, generate, run_prompt
from transformer_core.generation._sampler import Sampler
from transformer_core.generation._stop import StopRule, eos_ids, load_eos_ids

__all__ = [
    "CachedBatch",
    "CachedModel",
    "Sampler",
    "SamplingConfig",
    "Step",
    "StopRule",
    "eos_ids",
    "generate",
    "generate_batch",
    "load_eos_ids",
    "run_prompt",
]
