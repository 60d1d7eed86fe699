"""What is generated, on its way to stdout."""

import sys

import numpy as np

from tapeline.text import IdStream, Tokenizer
from transformer_core.generation import Step


class GenerationOutput:
    """What is generated.

    The text of one prompt is written as it comes; those of several when all are done, each below its number.
    """

    def __init__(self, tokenizer: Tokenizer | None, prompts: int) -> None:
        self._streams = [tokenizer.stream() if tokenizer else IdStream() for _ in range(prompts)]
        self._pieces: list[list[str]] = [[] for _ in range(prompts)]
        self._logits: list[list[np.ndarray]] = [[] for _ in range(prompts)]

    def push(self, row: int, step: Step, *, keep: bool) -> None:
        """Takes the next token of a prompt, and keeps its logits."""
        if keep:
            self._logits[row].append(step.logits)
        if step.ended != "eos":
            self._take(row, self._streams[row].push(step.token_id))

    def finish(self) -> str:
        """Writes the rest; gives the text of the first prompt."""
        for row, stream in enumerate(self._streams):
            self._take(row, stream.finish())
        texts = ["".join(pieces) for pieces in self._pieces]
        if len(texts) == 1:
            _show("\n")
        else:
            _show("".join(f"==> {row} <==\n{text}\n" for row, text in enumerate(texts, 1)))
        return texts[0]

    def logits(self) -> np.ndarray:
        """f32 [steps, V]; of several prompts [prompts, steps, V], NaN where one had ended."""
        if len(self._logits) == 1:
            return np.stack(self._logits[0])
        longest = max(map(len, self._logits))
        stacked = np.full((len(self._logits), longest, *self._logits[0][0].shape), np.nan, np.float32)
        for row, steps in enumerate(self._logits):
            stacked[row, : len(steps)] = steps
        return stacked

    def _take(self, row: int, text: str) -> None:
        self._pieces[row].append(text)
        if len(self._pieces) == 1:
            _show(text)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
