"""Generated text on its way to stdout."""

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from tapeline.running import GeneratedToken, Generation


class GenerationOutput:
    """Writes the generated text.

    The text of one prompt is written as it comes; those of several when all are done, each below its number.

    Args:
        prompts: number of prompts.
        keep_logits: True keeps the logits of every token.
        silent: True writes nothing.
    """

    def __init__(self, prompts: int, *, keep_logits: bool, silent: bool = False) -> None:
        self._logits: list[list[np.ndarray]] = [[] for _ in range(prompts)]
        self._keep_logits = keep_logits
        self._write: Final = _ignore if silent else _write

    def push(self, token: GeneratedToken) -> None:
        """Takes the next token of a prompt."""
        if self._keep_logits:
            self._logits[token.row].append(token.logits)
        if len(self._logits) == 1:
            self._write(token.text)

    def finish(self, answers: Sequence[Generation]) -> None:
        """Writes the rest."""
        if len(answers) == 1:
            self._write("\n")
        else:
            self._write("".join(f"==> {row} <==\n{answer.text}\n" for row, answer in enumerate(answers, 1)))

    def logits(self) -> np.ndarray:
        """Returns f32 [steps, V]; of several prompts [prompts, steps, V], NaN after the end of a prompt's answer."""
        if len(self._logits) == 1:
            return np.stack(self._logits[0])
        longest = max(map(len, self._logits))
        stacked = np.full((len(self._logits), longest, *self._logits[0][0].shape), np.nan, np.float32)
        for row, steps in enumerate(self._logits):
            stacked[row, : len(steps)] = steps
        return stacked


def _ignore(text: str) -> None:
    del text


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
