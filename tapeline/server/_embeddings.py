"""/v1/embeddings and /v1/rerank."""

import base64
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON
from tapeline.server._requests import EmbeddingRequest, RerankRequest
from tapeline.server._service import in_thread, model_of, note, service_of


async def embeddings(request: Request) -> Response:
    """Embeds texts."""
    service = service_of(request)
    fields = await service.read(request, EmbeddingRequest)
    model = await model_of(request, service.models.embedding_model, fields.model)
    texts = [one if isinstance(one, str) else await in_thread(model.text_of, one, "input") for one in fields.inputs]
    model.check_texts(texts, "input")
    vectors = await model.embed_batched(texts, fields.prompt_name, truncate=fields.truncate)
    values = shortened_vectors(np.asarray(vectors), fields.dimensions)
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(vector, fields.encoding_format)}
        for index, vector in enumerate(values)
    ]
    used = usage_of(int(vectors.tokens.sum()), int(vectors.truncated.sum()))
    note(request, model=model.name, prompt_tokens=used["prompt_tokens"])
    body = {"object": "list", "data": data, "model": model.name, "usage": used}
    return Response(to_json(body), media_type=JSON)


async def rerank(request: Request) -> Response:
    """Orders documents by a reranker's scores, or by how alike their embeddings are to the query's."""
    service = service_of(request)
    fields = await service.read(request, RerankRequest)
    model = await model_of(request, service.models.ranking_model, fields.model)
    model.check_texts(fields.texts, "documents", fields.query)
    ranked = await model.rank_batched(fields.query, fields.texts, truncate=fields.truncate)
    scores = ranked.scores
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: fields.top_n]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({"document": {"text": fields.texts[index]}} if fields.return_documents else {})
        for index in best
    ]
    note(request, model=model.name, prompt_tokens=ranked.tokens)
    used = usage_of(ranked.tokens, ranked.truncated)
    head = {"id": f"rerank-{request.scope['state']['request_id']}", "model": model.name, "usage": used}
    return Response(to_json({**head, "results": results}), media_type=JSON)


def shortened_vectors(vectors: np.ndarray, size: int | None) -> np.ndarray:
    """Returns the first values of vectors [texts, D], scaled to unit length, as OpenAI's API does.

    Args:
        vectors: the model's vectors.
        size: number of values to keep; None returns the vectors as they are.

    Raises:
        RequestError: the vectors have fewer values.
    """
    if size is None or size == vectors.shape[1]:
        return vectors
    if size > vectors.shape[1]:
        raise RequestError(
            f"dimensions: expected at most {vectors.shape[1]}, which the model gives; found {size}", param="dimensions"
        )
    kept = vectors[:, :size].astype(np.float64)
    norms = np.linalg.norm(kept, axis=1, keepdims=True)
    return (kept / np.where(norms > 0, norms, 1)).astype(np.float32)


def vector_of(vector: np.ndarray, encoding: str) -> Any:
    """Returns a vector as numbers, or as the bytes of f32 in base64."""
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(value) for value in vector]


def usage_of(tokens: int, truncated: int) -> dict[str, int]:
    """Returns the tokens that were read, and how many were cut off, if any, because texts were too long."""
    cut = {"truncated_tokens": truncated} if truncated else {}
    return {"prompt_tokens": tokens, "total_tokens": tokens, **cut}
