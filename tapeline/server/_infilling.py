"""Prompts of texts with a gap, for models that fill in the middle."""

from collections.abc import Sequence

from tapeline.server._errors import RequestError
from tapeline.server._model import TextModel
from tapeline.text import InfillTokens


def infill_tokens(model: TextModel, field: str) -> InfillTokens:
    """Returns the tokens that a model fills in the middle of a text with.

    Args:
        model: the model.
        field: field of the request that needs them.

    Raises:
        RequestError: the model's tokenizer has none.
    """
    tokens = InfillTokens.of(model.tokenizer)
    if tokens is None:
        raise RequestError(
            f"{field}: not supported: the tokenizer of model {model.name!r} has no tokens of prefix, suffix and middle "
            "(such as <|fim_prefix|>): ask a model that was trained to fill in the middle",
            param=field,
            code="unsupported_parameter",
        )
    return tokens


def infill_ids(
    model: TextModel, tokens: InfillTokens, prefix: Sequence[int], suffix: Sequence[int], before: Sequence[int] = ()
) -> list[int]:
    """Returns the tokens of a text with a gap.

    Args:
        model: the model.
        tokens: its tokens of prefix, suffix and middle.
        prefix: tokens before the gap.
        suffix: tokens after the gap.
        before: tokens before all of it.

    Raises:
        InputError: a token is none of the model's.
        RequestError: these are more tokens than the context has.
    """
    ids = [*before, tokens.prefix, *prefix, tokens.suffix, *suffix, tokens.middle]
    return model.prompt_ids(ids)
