"""Choosing the next token and knowing when to stop.

Axes: V vocabulary, C candidates (the tokens that filters have left).

>>> import numpy as np
>>> from generation import Sampler, SamplingConfig
>>> Sampler(SamplingConfig(), vocabulary_size=3)(np.array([0.5, 2.0, 1.0], np.float32), history=[])
1
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from generation._answer_rules import AnswerRules, AnswerScores, EarlyStopping
    from generation._beam_search import BeamAnswer, BeamRows, beam_search
    from generation._config import SamplingConfig
    from generation._defaults import (
        DEFAULT_SAMPLING,
        SAMPLING_FIELDS,
        default_sampling,
        load_default_sampling,
    )
    from generation._drafts import Drafter, DraftingModel, PredictionHead, PromptLookup
    from generation._prediction import KnownLogits, Prediction, likeliest_ids, rows_of
    from generation._prompt import CachedModel, check_room, run_prompt
    from generation._sampler import Sampler
    from generation._step import TokenStep
    from generation._stop import StopRule, eos_ids, load_eos_ids

export_lazily(__name__)
