"""Routes of llama-server and vLLM that tell of the server, and those that score and pool texts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from generation import SAMPLING_FIELDS
from tapeline.cli import VERSION
from tapeline.server._embeddings import shortened_vectors, usage_of, vector_of
from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON
from tapeline.server._model import TextModel
from tapeline.server._readers import Choice, Either, Flag, Items, Text, Whole
from tapeline.server._records import option, required
from tapeline.server._requests import TEXTS_OR_TOKENS, ChatRequest, EmbeddingRequest, inputs_of
from tapeline.server._service import in_thread, model_of, note, service_of
from tapeline.server._texts_model import text_of_tokens

_MOST_TEXTS: Final = 2048
_TEXTS: Final = Either((Text(1), Items(Text(1), 1, _MOST_TEXTS)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRequest:
    """Body of /v1/score."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str | None = option(Text(), "Name of a served model; may be left out if there is only one.")
    text_1: str | tuple[str, ...] | None = option(_TEXTS, "Text, or a list of texts.")
    text_2: str | tuple[str, ...] | None = option(_TEXTS, "Texts that are compared with text_1.")
    queries: str | tuple[str, ...] | None = option(_TEXTS, "The same as text_1.")
    documents: str | tuple[str, ...] | None = option(_TEXTS, "The same as text_2.")
    truncate: bool = option(Flag(), "Truncate texts that are longer than the model reads; false refuses them.", True)
    user: str | None = option(Text(), "Name of the end user.")

    def pairs(self) -> list[tuple[str, tuple[str, ...]]]:
        """Returns the first texts, each with those that it is compared with.

        Raises:
            RequestError: texts are missing, or the numbers of both kinds differ.
        """
        first = self.text_1 if self.queries is None else self.queries
        second = self.text_2 if self.documents is None else self.documents
        if first is None or second is None:
            missing = "text_1" if first is None else "text_2"
            raise RequestError(f"{missing}: this field is required: text, or a list of texts", param=missing)
        ones, others = _listed(first), _listed(second)
        if len(ones) == 1:
            return [(ones[0], others)]
        if len(ones) != len(others):
            raise RequestError(
                f"text_2: expected {len(ones)} texts, as text_1 has; found {len(others)}", param="text_2"
            )
        return [(one, (other,)) for one, other in zip(ones, others, strict=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolingRequest(EmbeddingRequest):
    """Body of /pooling."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    task: str = option(Choice(("embed",)), "Only embed: the vector of each text.", "embed")
    add_special_tokens: bool = option(Choice((True,)), "Only true.", True)
    priority: int = option(Whole(0, 0), "Only 0.", 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyRequest:
    """Body of /classify."""

    REFUSED: ClassVar[Mapping[str, str]] = {"messages": "texts only; send input"}

    model: str | None = option(Text(), "Name of a model that is served; may be left out where there is one.")
    input: str | tuple[Any, ...] = required(TEXTS_OR_TOKENS, "Text or token ids to classify, or a list of such.")
    use_activation: bool = option(Flag(), "Send scores; false sends logits.", True)
    activation: bool = option(Flag(), "The same as use_activation, in vLLM's older form.", True)
    softmax: bool = option(Flag(), "The same as use_activation, in vLLM's oldest form.", True)
    truncate: bool = option(Flag(), "Truncate texts that are longer than the model reads; false refuses them.", True)
    add_special_tokens: bool = option(Choice((True,)), "Only true.", True)
    priority: int = option(Whole(0, 0), "Only 0.", 0)
    user: str | None = option(Text(), "Name of the end user.")


async def version(_: Request) -> Response:
    """Returns the version of the server."""
    return Response(to_json({"version": VERSION}), media_type=JSON)


async def load(request: Request) -> Response:
    """Returns the number of requests that are being answered, without this one."""
    return Response(to_json({"server_load": service_of(request).active - 1}), media_type=JSON)


async def tokenizer_info(request: Request) -> Response:
    """Tells of a model's tokenizer."""
    model = await _text_model(request)
    body = {
        "model": model.name,
        "vocab_size": model.vocabulary,
        "model_max_length": model.context,
        "special_tokens": sorted(model.tokenizer.special_tokens()),
        "chat_template": None if model.template is None else model.template.text,
        **model.tokenizer.tokens,
    }
    return Response(to_json(body), media_type=JSON)


async def props(request: Request) -> Response:
    """Tells of a model as llama-server does."""
    model = await _text_model(request)
    parameters = {name: getattr(model.defaults, name) for name in SAMPLING_FIELDS}
    body = {
        "default_generation_settings": {"n_ctx": model.context, "params": parameters},
        "total_slots": model.engine.figures().slots,
        "model_path": model.name,
        "model_alias": model.name,
        "chat_template": "" if model.template is None else model.template.text,
        "bos_token": model.tokenizer.tokens.get("bos_token", ""),
        "eos_token": model.tokenizer.tokens.get("eos_token", ""),
        "modalities": {"vision": model.pictures is not None, "audio": False},
        "build_info": f"tapeline {VERSION}",
    }
    return Response(to_json(body), media_type=JSON)


async def slots(request: Request) -> Response:
    """Returns the slots of a model, as llama-server does: the first ones are those in use."""
    model = await _text_model(request)
    figures = model.engine.figures()
    listed = [
        {"id": index, "n_ctx": model.context, "is_processing": index < figures.running}
        for index in range(figures.slots)
    ]
    return Response(to_json(listed), media_type=JSON)


async def apply_template(request: Request) -> Response:
    """Returns the text that the chat template makes of a conversation."""
    service = service_of(request)
    fields = await service.read(request, ChatRequest)
    fields.check()
    model = await model_of(request, service.models.text_model, fields.model)
    async with service.turn(request):
        text = await in_thread(
            partial(
                model.chat_text,
                fields.messages,
                fields.chat_template_kwargs,
                tools=fields.tools,
                add_generation_prompt=fields.add_generation_prompt is not False,
                continued=fields.continue_final_message,
            )
        )
    return Response(to_json({"prompt": text}), media_type=JSON)


async def score(request: Request) -> Response:
    """Returns how well texts go together, by a reranker's scores, or by how alike their embeddings are."""
    service = service_of(request)
    fields = await service.read(request, ScoreRequest)
    pairs = fields.pairs()
    model = await model_of(request, service.models.ranking_model, fields.model)
    for one, others in pairs:
        model.check_texts(others, "text_2", one)
    scores: list[float] = []
    tokens = truncated = 0
    for one, others in pairs:
        ranked = await model.rank_batched(one, others, truncate=fields.truncate)
        scores += ranked.scores
        tokens, truncated = tokens + ranked.tokens, truncated + ranked.truncated
    note(request, model=model.name, prompt_tokens=tokens)
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)]
    head = {"id": f"score-{request.scope['state']['request_id']}", "object": "list", "model": model.name}
    return Response(to_json({**head, "data": data, "usage": usage_of(tokens, truncated)}), media_type=JSON)


async def pooling(request: Request) -> Response:
    """Returns the vectors of texts, as vLLM does."""
    service = service_of(request)
    fields = await service.read(request, PoolingRequest)
    model = await model_of(request, service.models.embedding_model, fields.model)
    texts = [one if isinstance(one, str) else await in_thread(model.text_of, one, "input") for one in fields.inputs]
    model.check_texts(texts, "input")
    vectors = await model.embed_batched(texts, fields.prompt_name, truncate=fields.truncate)
    data = [
        {"index": index, "object": "pooling", "data": vector_of(vector, fields.encoding_format)}
        for index, vector in enumerate(shortened_vectors(np.asarray(vectors), fields.dimensions))
    ]
    used = usage_of(int(vectors.tokens.sum()), int(vectors.truncated.sum()))
    note(request, model=model.name, prompt_tokens=used["prompt_tokens"])
    head = {"id": f"pool-{request.scope['state']['request_id']}", "object": "list", "model": model.name}
    return Response(to_json({**head, "data": data, "usage": used}), media_type=JSON)


async def classify(request: Request) -> Response:
    """Returns the label of each text and the scores of all labels, as vLLM does."""
    service = service_of(request)
    fields = await service.read(request, ClassifyRequest)
    model = await model_of(request, service.models.classifying_model, fields.model)
    tokenizer = model.classifying_tokenizer
    texts = [
        one if isinstance(one, str) else await in_thread(partial(text_of_tokens, tokenizer, one, "input"))
        for one in inputs_of(fields.input)
    ]
    model.check_texts(texts, "input")
    raw = not (fields.use_activation and fields.activation and fields.softmax)
    scores, labels = await model.classify_batched(texts, raw=raw, truncate=fields.truncate), model.labels
    data = [
        {
            "index": index,
            "label": labels[int(row.argmax())],
            "probs": [float(score) for score in row],
            "num_classes": len(labels),
        }
        for index, row in enumerate(np.asarray(scores))
    ]
    used = usage_of(int(scores.tokens.sum()), int(scores.truncated.sum()))
    note(request, model=model.name, prompt_tokens=used["prompt_tokens"])
    head = {"id": f"classify-{request.scope['state']['request_id']}", "object": "list", "created": int(time.time())}
    return Response(to_json({**head, "model": model.name, "data": data, "usage": used}), media_type=JSON)


def _listed(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


async def _text_model(request: Request) -> TextModel:
    return await model_of(request, service_of(request).models.text_model, request.query_params.get("model"))
