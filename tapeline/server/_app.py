"""The application: routes and their shared parts."""

from typing import Final

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tapeline.server._adapter_routes import load_adapter, unload_adapter
from tapeline.server._anthropic import count_tokens, messages
from tapeline.server._chat import chat_completions
from tapeline.server._completions import completions
from tapeline.server._embeddings import embeddings, rerank
from tapeline.server._gate import Gate
from tapeline.server._infill import infill
from tapeline.server._other_routes import (
    apply_template,
    classify,
    load,
    pooling,
    props,
    score,
    slots,
    tokenizer_info,
    version,
)
from tapeline.server._responses import delete_response, responses, retrieve_response
from tapeline.server._service import Service
from tapeline.server._status import (
    health,
    list_models,
    live,
    load_model,
    metrics,
    openapi,
    page,
    page_asset,
    retrieve_model,
    unload_model,
)
from tapeline.server._tokens import detokenize, tokenize
from tapeline.server._transcriptions import transcriptions, translations

ROUTES: Final = (
    Route("/", page, methods=["GET"]),
    Route("/page/{file:path}", page_asset, methods=["GET"]),
    Route("/health", health, methods=["GET"]),
    Route("/live", live, methods=["GET"]),
    Route("/version", version, methods=["GET"]),
    Route("/ping", health, methods=["GET", "POST"]),
    Route("/load", load, methods=["GET"]),
    Route("/props", props, methods=["GET"]),
    Route("/slots", slots, methods=["GET"]),
    Route("/tokenizer_info", tokenizer_info, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
    Route("/openapi.json", openapi, methods=["GET"]),
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", retrieve_model, methods=["GET"]),
    Route("/v1/models/load", load_model, methods=["POST"]),
    Route("/v1/models/unload", unload_model, methods=["POST"]),
    Route("/v1/load_lora_adapter", load_adapter, methods=["POST"]),
    Route("/v1/unload_lora_adapter", unload_adapter, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/infill", infill, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/responses/{response}", retrieve_response, methods=["GET"]),
    Route("/v1/responses/{response}", delete_response, methods=["DELETE"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/v1/score", score, methods=["POST"]),
    Route("/classify", classify, methods=["POST"]),
    Route("/pooling", pooling, methods=["POST"]),
    Route("/apply-template", apply_template, methods=["POST"]),
    Route("/v1/rerank", rerank, methods=["POST"]),
    Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
    Route("/v1/audio/translations", translations, methods=["POST"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
)


def create_app(service: Service) -> ASGIApp:
    """Returns the application of a server."""
    return Gate(Router(ROUTES, redirect_slashes=False), service)
