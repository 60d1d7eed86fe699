"""Samples of golden cases for default runs; with TAPELINE_LONG=1 in the environment they are all of them.

What is the same code for all families (caches, slots, recordings, kernels, lowering) is held to one case of each
structure of layers; what each family does by itself (its config, its weights, its logits) to all of its cases.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.goldens.cases import CASES, GoldenCase
from transformer_core.family import family_named
from transformer_core.models import DecoderConfig

LONG: Final = bool(os.environ.get("TAPELINE_LONG"))


def config_of(case: GoldenCase) -> DecoderConfig:
    """Returns the case's configuration."""
    return DecoderConfig.from_hf(case.config)


def structure_of(case: GoldenCase) -> tuple[object, ...]:
    """Returns what code the case's layers are made of: their class, mixer, caches and feed-forward."""
    config = config_of(case)
    family = family_named(config.architecture)
    return (
        getattr(family, "layer", None),
        type(config.mixer),
        any(config.windows),
        config.latent is not None,
        config.experts is not None,
        config.rope.scaling.depends_on_length,
        any(owner is not None for owner in config.cache_owners),
        config.alibi is not None,
    )


def _one_of_each() -> Mapping[str, GoldenCase]:
    firsts = {structure_of(case): case for case in reversed(CASES.values())}
    return {case.name: case for case in reversed(firsts.values())}


BY_STRUCTURE: Final = _one_of_each()
"""First case of each structure of layers, by name."""
SAMPLE: Final[Mapping[str, GoldenCase]] = CASES if LONG else BY_STRUCTURE
"""Cases of this run."""


def in_turns(names: Iterable[str], variants: Sequence[Any]) -> list[tuple[str, Any]]:
    """Returns names with their variants: one each by turns, in long runs all."""
    return list(itertools.product(names, variants)) if LONG else list(zip(names, itertools.cycle(variants)))
