"""Description of all routes for programs: an OpenAPI document, made of the readers that read the requests."""

import functools
import re
from collections.abc import Iterator
from typing import Any, Final

from lang_core import checked_choices
from tapeline.cli import VERSION
from tapeline.server._anthropic import CountRequest, MessagesRequest
from tapeline.server._infill import InfillRequest
from tapeline.server._other_routes import ClassifyRequest, PoolingRequest, ScoreRequest
from tapeline.server._records import RecordType, record_schema
from tapeline.server._requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    LoadAdapterRequest,
    ModelRequest,
    RerankRequest,
    TokenizeRequest,
    TranscriptionRequest,
    TranslationRequest,
    UnloadAdapterRequest,
)
from tapeline.server._responses import ResponsesRequest

POSTS: Final[dict[str, tuple[type[RecordType], str]]] = {
    "/v1/chat/completions": (ChatRequest, "Answers a conversation."),
    "/v1/completions": (CompletionRequest, "Goes on from texts."),
    "/infill": (InfillRequest, "Fills in the middle of a text, as llama-server does."),
    "/v1/responses": (ResponsesRequest, "Answers a conversation, as OpenAI's API of responses has it."),
    "/v1/messages": (MessagesRequest, "Answers a conversation, as Anthropic's API has it."),
    "/v1/messages/count_tokens": (CountRequest, "Counts the tokens of a conversation."),
    "/v1/embeddings": (EmbeddingRequest, "Embeds texts."),
    "/v1/rerank": (RerankRequest, "Orders documents by a reranker's scores, or by the cosine of embeddings."),
    "/v1/score": (ScoreRequest, "Scores pairs of texts."),
    "/classify": (ClassifyRequest, "Classifies texts, in vLLM's form."),
    "/pooling": (PoolingRequest, "Embeds texts, in vLLM's form."),
    "/apply-template": (ChatRequest, "Writes a conversation as the chat template does."),
    "/tokenize": (TokenizeRequest, "Cuts a text, or messages, into tokens."),
    "/v1/models/load": (ModelRequest, "Loads a model on demand."),
    "/v1/models/unload": (ModelRequest, "Unloads a model on demand."),
    "/v1/load_lora_adapter": (LoadAdapterRequest, "Loads a LoRA adapter of a model."),
    "/v1/unload_lora_adapter": (UnloadAdapterRequest, "Unloads a LoRA adapter of a model."),
    "/detokenize": (DetokenizeRequest, "Writes tokens as text."),
}
"""Routes that take a body: its fields, and a line of help."""

_TRANSCRIPTIONS: Final = "/v1/audio/transcriptions"
_TRANSLATIONS: Final = "/v1/audio/translations"
_LISTS: Final = ("timestamp_granularities",)  # a form's names of lists end with []

_GETS: Final = {
    "/": ("text/html", "A page to chat on."),
    "/page/{file}": ("text/javascript", "A script or style sheet of the page."),
    "/health": ("application/json", "200 when the server can serve, else 503; while it loads, with the progress."),
    "/live": ("application/json", "200 while the process runs, also while it loads models or ends."),
    "/version": ("application/json", "Version of the server."),
    "/ping": ("application/json", "The same as /health."),
    "/load": ("application/json", "Number of requests that are being answered."),
    "/props": ("application/json", "Tells of a model, as llama-server does."),
    "/slots": ("application/json", "Slots of a model, as llama-server lists them."),
    "/tokenizer_info": ("application/json", "Tells of a model's tokenizer."),
    "/metrics": ("text/plain", "Metrics in Prometheus' text format."),
    "/openapi.json": ("application/json", "This document."),
    "/v1/models": ("application/json", "Lists every model."),
    "/v1/models/{model}": ("application/json", "Tells of one model."),
    "/v1/responses/{response}": ("application/json", "Returns a response that was stored."),
}
_DELETES: Final = {"/v1/responses/{response}": ("application/json", "Forgets a response that was stored.")}
_ERRORS: Final = {
    "400": "A field is wrong, or is not supported.",
    "401": "No valid API key.",
    "404": "No such model.",
    "408": "The body came too slowly.",
    "409": "The model that is to be unloaded is in use.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON, or a form where one is asked for.",
    "429": "The queue is full; Retry-After says when to ask again.",
    "500": "The model failed.",
    "503": "The server is loading its models, or ends.",
    "504": "The answer took too long.",
}
_ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


@checked_choices
def document(*, strict: bool = False) -> dict[str, Any]:
    """Returns the OpenAPI document.

    Args:
        strict: True for a server that refuses unknown fields.
    """
    return _whole() if strict else _with_unknown(_whole())


def _whole() -> dict[str, Any]:
    paths: dict[str, Any] = {path: {"post": _post(*what)} for path, what in POSTS.items()}
    paths[_TRANSCRIPTIONS] = {"post": _form(TranscriptionRequest, "Turns a sound file into text.")}
    paths[_TRANSLATIONS] = {"post": _form(TranslationRequest, "Turns a sound file into English text.")}
    paths |= {path: {"get": _get(path, *what)} for path, what in _GETS.items()}
    for path, what in _DELETES.items():
        paths[path]["delete"] = _get(path, *what)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tapeline", "version": VERSION},
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR_SCHEMA},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _with_unknown(schema: Any) -> Any:
    """Returns a schema in which objects may have unknown fields."""
    if isinstance(schema, list):
        return [_with_unknown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = schema.get("additionalProperties") == {"type": "null"}
    return {key: _with_unknown(part) for key, part in schema.items() if not (closed and key == "additionalProperties")}


def _form(kind: type[RecordType], text: str) -> dict[str, Any]:
    schema = record_schema(kind)
    fields = {f"{name}[]" if name in _LISTS else name: field for name, field in schema["properties"].items()}
    file = {"type": "string", "format": "binary", "description": "A WAV or FLAC file."}
    whole = {**schema, "properties": {"file": file, **fields}, "required": ["file"]}
    body = {"required": True, "content": {"multipart/form-data": {"schema": whole}}}
    return {"summary": text, "requestBody": body, "responses": {**_done("application/json"), **_failures()}}


def _post(kind: type[RecordType], text: str) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": record_schema(kind)}}}
    return {"summary": text, "requestBody": body, "responses": {**_done("application/json"), **_failures()}}


def _get(path: str, media: str, text: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"summary": text, "parameters": parameters, "responses": {**_done(media), **_failures()}}


def _done(media: str) -> dict[str, Any]:
    return {"200": {"description": "Done.", "content": {media: {}}}}


def _failures() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": text, "content": content} for status, text in _ERRORS.items()}


@functools.cache
def known_names() -> frozenset[str]:
    """Returns the names of all fields of all requests, those that are not supported included."""
    kinds = [*(kind for kind, _ in POSTS.values()), TranscriptionRequest]
    refused = {name for kind in kinds for name in kind.REFUSED}
    return frozenset(refused | {name for kind in kinds for name in _property_names(record_schema(kind))})


def _property_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for part in schema.values():
            yield from _property_names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _property_names(part)
