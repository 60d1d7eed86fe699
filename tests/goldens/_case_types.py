"""Golden cases as plain data: no torch, no NumPy."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = dict[str, Any]
StoredDType = Literal["f32", "bf16", "f16"]
ATTENTION = {"falcon": "sdpa"}
"""Transformers' implementation of a model type's attention, if not eager: Falcon's eager one adds ALiBi twice."""


@dataclass(frozen=True)
class GoldenCase:
    """One tiny random model, its prompts, and what makes it worth testing.

    Attributes:
        name: the case's name and the stem of its file in ``data/``.
        twist: what this case covers that the others do not, in one line.
        config: ``config.json`` as the writing version of transformers stores it.
        form: ``"5.x"`` (with ``rope_parameters`` and ``dtype``) or ``"4.x"`` (with ``rope_theta``, ``rope_scaling`` and
            ``torch_dtype``).
        seed: the seed of the weights (``weights.random_weights``).
        prompt: token ids ``[B][T]``; all rows are equally long.
        stored: the dtype of the checkpoint. Goldens are computed in f32 from the weights rounded to this dtype.
        steps: the number of greedy steps.
        hidden: whether the golden file also has the hidden states after each block.
        must_matter: config changes, each of which must move the logits visibly (``make_goldens.py`` refuses a case
            where one does not): the proof that a model that ignores the twist fails the case.
    """

    name: str
    twist: str
    config: Config
    form: Literal["4.x", "5.x"]
    seed: int
    prompt: tuple[tuple[int, ...], ...]
    stored: StoredDType = "f32"
    steps: int = 12
    hidden: bool = False
    must_matter: tuple[Mapping[str, Any], ...] = ()

    def digest(self) -> str:
        """SHA-256 of everything the golden file depends on besides the weights' generator."""
        facts = [self.config, self.seed, self.prompt, self.stored, self.steps, self.hidden]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class RopeCase:
    """One RoPE table.

    Attributes:
        name: the case's name, the prefix of its arrays in ``data/rope.npz``.
        config: the part of ``config.json`` that RoPE depends on. ``model_type`` names the reference's model.
        positions: ``[P]``, or ``[3][P]`` for multi-section RoPE (time, height, width). The sequence's length, on which
            dynamic and longrope tables depend, is the greatest position plus one.
    """

    name: str
    config: Config
    positions: tuple[int, ...] | tuple[tuple[int, ...], ...]

    def digest(self) -> str:
        """SHA-256 of everything the table depends on."""
        return hashlib.sha256(json.dumps([self.config, self.positions], sort_keys=True).encode()).hexdigest()


def prompt(*lengths: int, vocab: int) -> tuple[tuple[int, ...], ...]:
    """Token ids ``[B][T]`` in ``0 .. vocab - 1``: scattered, with the first and the last id among them.

    Args:
        *lengths: the length T of each row.
        vocab: the size of the vocabulary V.
    """
    rows = []
    for row, length in enumerate(lengths):
        ids = [(11 + 17 * row + 31 * i + 7 * i * i) % vocab for i in range(length)]
        if length > 4:
            ids[2], ids[4] = vocab - 1 - row, row
        rows.append(tuple(ids))
    return tuple(rows)
