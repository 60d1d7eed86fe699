"""/v1/embeddings and /v1/rerank."""

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._embedding_model import EmbeddingModel
from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON
from tapeline.server._requests import EmbeddingRequest, RerankRequest
from tapeline.server._service import in_thread, note, service_of


async def embeddings(request: Request) -> Response:
    """Embeds texts."""
    service = service_of(request)
    fields = await service.read(request, EmbeddingRequest)
    model = service.models.embedding_model(fields.model)
    vectors = await in_thread(model.embed, fields.texts)
    if fields.dimensions not in (None, vectors.shape[1]):
        raise RequestError(
            f"dimensions: expected {vectors.shape[1]}, which the model gives; found {fields.dimensions}",
            param="dimensions",
        )
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(vector, fields.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    used = await in_thread(_usage, model, *fields.texts)
    note(request, model=model.name, prompt_tokens=used["prompt_tokens"])
    body = {"object": "list", "data": data, "model": model.name, "usage": used}
    return Response(to_json(body), media_type=JSON)


async def rerank(request: Request) -> Response:
    """Orders documents by a reranker's scores, or by the cosine of their embedding with the query's."""
    service = service_of(request)
    fields = await service.read(request, RerankRequest)
    model = service.models.ranking_model(fields.model)
    scores = await in_thread(model.rank, fields.query, fields.texts)
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: fields.top_n]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": fields.texts[index]}} if fields.return_documents else {})
        for index in best
    ]
    tokens = await in_thread(model.ranked_tokens, fields.query, fields.texts)
    note(request, model=model.name, prompt_tokens=tokens)
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    head = {"id": f"rerank-{request.scope['state']['request_id']}", "model": model.name, "usage": used}
    return Response(to_json({**head, "results": results}), media_type=JSON)


def _vector(vector: np.ndarray, encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(value) for value in vector]


def _usage(model: EmbeddingModel, *texts: str) -> dict[str, int]:
    tokens = sum(len(model.tokenizer.encode(text)) for text in texts)
    return {"prompt_tokens": tokens, "total_tokens": tokens}
