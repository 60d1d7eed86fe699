"""Log probabilities in the forms of the API."""

from collections.abc import Iterable, Sequence
from typing import Any

from generation.engine import TokenEvent
from tapeline.server._answer_text import PlacedToken
from tapeline.text import Tokenizer

_LEAST = -9999.0  # which OpenAI sends for a probability of 0; JSON has no infinity


def chat_logprobs(tokens: Iterable[PlacedToken], tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns ``logprobs`` of a chat's choice: a token's text, its bytes, and the likeliest tokens in its place."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        value = tokenizer.token_bytes(token_id)
        return {"token": value.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(value)}

    content = [
        {
            **entry(placed.event.token_id, placed.event.logprob),
            "top_logprobs": [entry(*one) for one in placed.event.alternatives],
        }
        for placed in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Iterable[PlacedToken], tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns ``logprobs`` of a completion's choice: lists with an entry per token."""
    placed = list(tokens)
    return {
        "text_offset": [token.offset for token in placed],
        "token_logprobs": [_finite(token.event.logprob) for token in placed],
        "tokens": [_text(token.event.token_id, tokenizer) for token in placed],
        "top_logprobs": [_top(token.event, tokenizer) for token in placed],
    }


def _top(event: TokenEvent, tokenizer: Tokenizer) -> dict[str, float | None] | None:
    """Returns the likeliest tokens by their text, of those written alike the likeliest; None for the first."""
    if event.logprob is None:
        return None
    pairs = [*event.alternatives, (event.token_id, event.logprob)]
    return {_text(token_id, tokenizer): _finite(logprob) for token_id, logprob in reversed(pairs)}


def prompt_logprobs(tokens: Sequence[TokenEvent | None], tokenizer: Tokenizer) -> list[Any]:
    """Returns ``prompt_logprobs`` as vLLM has them: per token the likeliest and its own by id; None for the first."""
    return [None if event is None else _ranked(event, tokenizer) for event in tokens]


def _ranked(event: TokenEvent, tokenizer: Tokenizer) -> dict[str, Any]:
    ranks = {token_id: rank for rank, (token_id, _) in enumerate(event.alternatives, 1)}
    logprobs = {event.token_id: event.logprob, **dict(event.alternatives)}
    return {
        str(token_id): {
            "logprob": _finite(logprob),
            "rank": ranks.get(token_id),
            "decoded_token": _text(token_id, tokenizer),
        }
        for token_id, logprob in logprobs.items()
    }


def _text(token_id: int, tokenizer: Tokenizer) -> str:
    return tokenizer.token_bytes(token_id).decode(errors="replace")


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(float(logprob), _LEAST)
