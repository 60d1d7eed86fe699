"""Writes sampling.npz: results of transformers' logits processors for some logits.

Made with transformers 5.23.0 and torch 2.13.0 (CPU). Neither is a dependency of this repository: install both in an
environment of their own and run ``python make_sampling_goldens.py`` from anywhere.

The cases (``settings``: temperature, top_k, top_p, min_p, repetition_penalty) hold the logits ``[V]``, the history
``[T]`` and the processed scores ``[V]``. Zero temperature stands for transformers' ``do_sample=False``.
"""

import itertools
from pathlib import Path

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

SIZE = 37
TEMPERATURES = (0.0, 0.6, 1.0, 1.7)
TOP_KS = (0, 1, 5, 64)
TOP_PS = (0.0, 0.3, 0.9, 1.0)
MIN_PS = (0.0, 0.05, 0.6)
PENALTIES = (0.8, 1.0, 1.3)


def processors(temperature: float, top_k: int, top_p: float, min_p: float, penalty: float) -> LogitsProcessorList:
    """The list that ``GenerationMixin._get_logits_processor`` builds, in its order."""
    chain = LogitsProcessorList()
    if penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(penalty))
    if temperature == 0:
        return chain
    if temperature != 1:
        chain.append(TemperatureLogitsWarper(temperature))
    if top_k:
        chain.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        chain.append(TopPLogitsWarper(top_p))
    if min_p:
        chain.append(MinPLogitsWarper(min_p))
    return chain


def main() -> None:
    """Writes sampling.npz beside this file."""
    rng = np.random.default_rng(20)
    settings, all_logits, histories, scores = [], [], [], []
    for setting in itertools.product(TEMPERATURES, TOP_KS, TOP_PS, MIN_PS, PENALTIES):
        logits = (rng.standard_normal(SIZE) * rng.choice([0.5, 3, 8])).astype(np.float32)
        if rng.random() < 0.5:  # rounding makes ties
            logits = np.round(logits * 2) / 2
        history = rng.integers(0, SIZE, 11)
        chain = processors(*setting)
        made = chain(torch.from_numpy(history)[None], torch.from_numpy(logits)[None])[0].numpy()
        settings.append(setting)
        all_logits.append(logits)
        histories.append(history.astype(np.int32))
        scores.append(made)
    path = Path(__file__).with_name("sampling.npz")
    np.savez_compressed(
        path,
        settings=np.array(settings, np.float64),
        logits=np.array(all_logits, np.float32),
        histories=np.array(histories),
        scores=np.array(scores, np.float32),
    )


if __name__ == "__main__":
    main()
