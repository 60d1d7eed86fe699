"""The loop of generation: a prompt in, tokens out, with any model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from generation._prediction import Prediction
from generation._prompt import CachedModel, PromptMemory, check_room, run_prompt, run_token
from generation._sampler import Sampler
from generation._speculation import Speculation
from generation._stop import StopRule
from lang_core import checked_choices


@checked_choices
@dataclass(frozen=True, slots=True)
class TokenStep:
    """A new token.

    Attributes:
        token_id: the token.
        prediction: from which it was chosen.
        ended: why generation ends with it; None where it goes on.
    """

    token_id: int
    prediction: Prediction
    ended: Literal["eos", "length"] | None

    @property
    def logits(self) -> np.ndarray:
        """The logits f32 [V] from which it was chosen; read from the device now, if that was not done before.

        Errors are the model's: of a session that is closed nothing can be read.
        """
        return self.prediction.logits()


def generate(
    model: CachedModel,
    prompt: Sequence[int],
    sampler: Sampler,
    stop: StopRule,
    *,
    memory: PromptMemory | None = None,
    speculation: Speculation | None = None,
) -> Iterator[TokenStep]:
    """Returns an iterator of new tokens, until the rule ends generation.

    Args:
        model: model with empty caches, or with those that the memory knows; its caches are filled.
        prompt: at least one token.
        sampler: chooses the tokens.
        stop: rule that ends generation.
        memory: record of what the caches hold of earlier prompts; None where they are empty.
        speculation: speculation with this model, for several tokens per call; the tokens are the same.

    Raises:
        InputError: the prompt is empty, or it and the new tokens do not fit into the caches; at once, before a token is
            asked for.
    """
    check_room(prompt, stop.max_new_tokens, model.capacity)
    return _tokens(model, prompt, sampler, stop, memory, speculation)


def _tokens(
    model: CachedModel,
    prompt: Sequence[int],
    sampler: Sampler,
    stop: StopRule,
    memory: PromptMemory | None,
    speculation: Speculation | None,
) -> Iterator[TokenStep]:
    history, count = list(prompt), 0
    predictions: Sequence[Prediction] = [run_prompt(model, prompt, memory)]
    draft: Sequence[int] = ()
    while True:
        for prediction, expected in zip(predictions, [*draft, None], strict=True):
            token_id = sampler.choose(prediction, history, prompt_tokens=len(prompt))
            history.append(token_id)
            count += 1
            if speculation and token_id == expected:
                speculation.accepted += 1
            ended = stop.reason(token_id, count)
            yield TokenStep(token_id, prediction, ended)
            if ended:
                return
            if token_id != expected:
                break
        if speculation:
            predictions, draft = speculation.advance(history, stop.max_new_tokens - count)
        else:
            predictions = [run_token(model, history, memory)]
