"""Answers of requests that run alone, without an engine; and requests with random settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from generation import Prediction, Sampler, SamplingConfig
from generation.engine import EndEvent, ModelRunner, PromptEvent, PromptPicture, TokenEvent, TokenRequest

Logprobs = tuple[int, float | None, tuple[tuple[int, float], ...]]


@dataclass
class Received:
    """Events of one request, in the order of ``Engine.submit``'s listener.

    Attributes:
        events: all of them.
    """

    events: list[Any] = field(default_factory=list[Any])

    def __call__(self, event: Any) -> None:
        """Keeps an event; fails where one comes after the end."""
        assert not self.ended, f"{event} after {self.events[-1]}"
        self.events.append(event)

    @property
    def ended(self) -> bool:
        """True after the last event."""
        return bool(self.events) and isinstance(self.events[-1], EndEvent)

    @property
    def end(self) -> EndEvent:
        """The last event."""
        assert self.ended
        return self.events[-1]

    @property
    def tokens(self) -> list[Logprobs]:
        """The new tokens with their log probabilities."""
        return [_said(event) for event in self.events if isinstance(event, TokenEvent)]

    @property
    def prompt(self) -> list[Logprobs | None] | None:
        """Log probabilities of the prompt's tokens; None without, or if it was not run."""
        asked = [event.logprobs for event in self.events if isinstance(event, PromptEvent) and event.logprobs]
        return [event and _said(event) for event in asked[0]] if asked else None


class EveryOther:
    """Constraint that forbids about half of all tokens, others after each, and ends after some tokens."""

    def __init__(self, vocabulary: int, count: int) -> None:
        """Allows ``count`` tokens."""
        self.finished = False
        self._vocabulary, self._count, self._seen = vocabulary, count, 1

    def mask(self, out: np.ndarray) -> None:
        """Allows tokens by a rule of what came before."""
        out[:] = (np.arange(self._vocabulary) * self._seen) % 7 < 4

    def accept(self, token_id: int) -> None:
        """Goes on."""
        assert (token_id * self._seen) % 7 < 4
        self._seen = self._seen * 3 + token_id
        self._count -= 1
        self.finished = self._count == 0


class LateEveryOther(EveryOther):
    """The same, which the engine has to wait for: a few times before each mask, and after each token."""

    def __init__(self, vocabulary: int, count: int) -> None:
        """Allows ``count`` tokens."""
        super().__init__(vocabulary, count)
        self._masks = self._ends = 2
        self.closed = False

    def mask(self, out: np.ndarray) -> None:
        """Allows the same tokens, once it is ready."""
        assert not self.closed
        super().mask(out)
        self._masks = (self._seen + 1) % 3

    def post(self, token_id: int) -> None:
        """Goes on."""
        assert not self.closed
        self.accept(token_id)
        self._ends = self._seen % 4

    def settled(self, seconds: float) -> bool:
        """Returns False a few times."""
        self._ends -= 1
        return self._ends < 0

    def ready(self, seconds: float) -> bool:
        """Returns False a few times."""
        self._masks -= 1
        return self._masks < 0

    def close(self) -> None:
        """Refuses everything from now on."""
        self.closed = True


def alone(model: ModelRunner, request: TokenRequest, pieces: Sequence[int]) -> tuple[list[Logprobs], str, Any]:
    """Returns the new tokens of a request, why it ended, and what is said of its prompt.

    Args:
        model: a model with empty rows.
        request: the request; its constraint has seen nothing.
        pieces: sizes of the pieces in which the prompt is run.
    """
    history, sampler = list(request.prompt), Sampler(request.sampling, model.vocabulary)
    model.clear_row(0)
    prediction, scored = _run_prompt(model, request, pieces)
    tokens: list[Logprobs] = []
    while True:
        allowed = None
        if request.constraint:
            allowed = np.zeros(model.vocabulary, np.bool_)
            request.constraint.mask(allowed)
        logits = prediction.logits()
        token_id = sampler(logits, history, prompt_tokens=len(request.prompt), allowed=allowed)
        history.append(token_id)
        if token_id in request.ends and (request.constraint or not request.ignore_eos):
            return tokens, "eos", scored
        tokens.append(scores_of(token_id, logits, request.logprobs))
        if request.constraint:
            request.constraint.accept(token_id)
            if request.constraint.finished:
                return tokens, "eos", scored
        if len(tokens) == request.max_new_tokens:
            return tokens, "length", scored
        prediction = model.decode([0], [token_id], [len(history) - 1])[0]


def _run_prompt(model: ModelRunner, request: TokenRequest, pieces: Sequence[int]) -> tuple[Prediction, Any]:
    prompt, position, prediction = list(request.prompt), 0, None
    if request.prompt_logprobs is None:
        seen = {one.start + place: row for one in request.pictures for place, row in enumerate(_seen(model, one))}
        for size in pieces:
            rows = [seen.get(at) for at in range(position, position + size)]
            width = max((len(row) for row in rows if row is not None), default=0)
            embeddings = np.stack([np.zeros(width, np.float32) if row is None else row for row in rows])
            prediction = model.prefill_row(
                prompt[position : position + size], 0, position, embeddings if width else None
            )
            position += size
        assert prediction
        return prediction, None
    scored: list[Logprobs | None] = [None]
    for position, token_id in enumerate(prompt):
        if prediction:
            scored.append(scores_of(token_id, prediction.logits(), request.prompt_logprobs))
        prediction = model.decode([0], [token_id], [position])[0]
    assert prediction
    return prediction, scored


def _seen(model: ModelRunner, picture: PromptPicture) -> np.ndarray:
    embeddings = model.encode_image(picture.pixels)
    assert len(embeddings) == picture.stop - picture.start
    return embeddings


@dataclass(frozen=True)
class PictureKind:
    """Pictures of random requests.

    Attributes:
        token: token that stands for a part of one.
        count: tokens of each.
        pool: pixels f32 [3, height, width] of each.
    """

    token: int
    count: int
    pool: Sequence[np.ndarray]


def with_pictures(
    make: Callable[[], TokenRequest], random: np.random.Generator, kind: PictureKind
) -> Callable[[], TokenRequest]:
    """Returns a request with up to three pictures in its prompt, where they fit, in places that many requests share."""
    request, pictures, start = make(), list[PromptPicture](), 2
    prompt = [0 if token_id == kind.token else token_id for token_id in request.prompt]  # else they stand for pictures
    while len(pictures) < 3 and start + kind.count <= len(prompt):
        if random.random() < 0.6:
            pixels = kind.pool[int(random.integers(0, len(kind.pool)))]
            prompt[start : start + kind.count] = [kind.token] * kind.count
            pictures.append(PromptPicture(pixels=pixels, start=start, stop=start + kind.count))
        start += kind.count + 3
    fields: dict[str, Any] = {"prompt": prompt, "pictures": pictures} | ({"prompt_logprobs": None} if pictures else {})
    return lambda: replace(make(), **fields)


def scores_of(token_id: int, logits: np.ndarray, most: int | None) -> Logprobs:
    """Returns a token, its log probability, and the likeliest tokens with theirs, as OpenAI's API defines them."""
    if most is None:
        return token_id, None, ()
    rest = float(np.log(np.exp(logits - logits.max()).sum(dtype=np.float64)))
    logprobs = logits.astype(np.float64) - float(logits.max()) - rest
    order = sorted(range(len(logits)), key=lambda i: (-logprobs[i], i))[:most]
    return token_id, float(logprobs[token_id]), tuple((i, float(logprobs[i])) for i in order)


def random_requests(seed: int, count: int, vocabulary: int, capacity: int) -> list[Callable[[], TokenRequest]]:
    """Returns requests with random settings, of which many share the beginnings of their prompts.

    Each is made anew by a call, with a constraint that has seen nothing.
    """
    random = np.random.default_rng(seed)
    stems = [random.integers(0, vocabulary, random.integers(4, capacity // 2)).tolist() for _ in range(3)]
    return [_random_request(random, vocabulary, capacity, stems) for _ in range(count)]


def _random_request(
    random: np.random.Generator, vocabulary: int, capacity: int, stems: list[list[int]]
) -> Callable[[], TokenRequest]:
    prompt = _random_prompt(random, vocabulary, capacity, stems)
    settings: dict[str, Any] = {
        "prompt": prompt,
        "sampling": _random_sampling(random, vocabulary),
        "max_new_tokens": int(random.integers(1, max(2, min(20, capacity - len(prompt) + 1)))),
        "ends": frozenset(random.integers(0, vocabulary, random.integers(0, 3)).tolist()),
        "ignore_eos": bool(random.random() < 0.2),
        "logprobs": None if random.random() < 0.5 else int(random.integers(0, 4)),
        "prompt_logprobs": int(random.integers(0, 3)) if random.random() < 0.1 else None,
        "client": str(random.integers(0, 4)),
    }
    stems.append(prompt[: capacity // 2])
    request = TokenRequest(**settings)
    if random.random() < 0.2:
        count = int(random.integers(1, 9))
        kind = LateEveryOther if count % 2 else EveryOther
        return lambda: replace(request, constraint=kind(vocabulary, count))
    return lambda: request


def _random_prompt(random: np.random.Generator, vocabulary: int, capacity: int, stems: list[list[int]]) -> list[int]:
    """Returns an earlier prompt or the beginning of one, often with more tokens, or a new one."""
    kind, stem = random.random(), stems[random.integers(0, len(stems))]
    if kind < 0.2:
        return stem
    if kind < 0.7:
        stem = stem[: random.integers(1, len(stem) + 1)]
    more = random.integers(0, vocabulary, random.integers(1, capacity // 3)).tolist()
    return [*stem, *more] if kind < 0.8 else more


def _random_sampling(random: np.random.Generator, vocabulary: int) -> SamplingConfig:
    if random.random() < 0.4:
        return SamplingConfig()
    return SamplingConfig(
        temperature=float(random.choice([0.0, 0.6, 1.3])),
        top_k=int(random.choice([0, 5])),
        top_p=float(random.choice([1.0, 0.8])),
        min_p=float(random.choice([0.0, 0.05])),
        repetition_penalty=float(random.choice([1.0, 1.2])),
        presence_penalty=float(random.choice([0.0, 0.7])),
        frequency_penalty=float(random.choice([0.0, -0.4])),
        logit_bias={int(random.integers(0, vocabulary)): 3.0} if random.random() < 0.3 else {},
        seed=int(random.integers(0, 1000)),
    )


def follow_up(request: TokenRequest, received: Received) -> TokenRequest:
    """Returns the next request of a conversation: the prompt, the answer, and more."""
    image_token = request.prompt[request.pictures[0].start] if request.pictures else None
    answer = [0 if token_id == image_token else token_id for token_id, _, _ in received.tokens]
    prompt = [*request.prompt, *answer, *request.prompt[:2]]
    return replace(request, prompt=prompt, constraint=None, prompt_logprobs=None)


def _said(event: TokenEvent) -> Logprobs:
    return event.token_id, event.logprob, event.alternatives
