"""/tokenize and /detokenize."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON
from tapeline.server._lengths import check_length
from tapeline.server._model import TextModel
from tapeline.server._requests import DetokenizeRequest, TokenizeRequest
from tapeline.server._service import Service, in_thread, model_of, service_of
from tapeline.text import check_ids


async def tokenize(request: Request) -> Response:
    """Cuts a text, or messages, into tokens."""
    service = service_of(request)
    fields = await service.read(request, TokenizeRequest)
    model = await model_of(request, service.models.text_model, fields.model)
    async with service.turn(request):
        return Response(await in_thread(_tokenized, model, fields, service), media_type=JSON)


async def detokenize(request: Request) -> Response:
    """Writes tokens as text."""
    service = service_of(request)
    fields = await service.read(request, DetokenizeRequest)
    model = await model_of(request, service.models.text_model, fields.model)
    check_length(len(fields.tokens), model.context, "tokens", "tokens")
    async with service.turn(request):
        return Response(await in_thread(_detokenized, model, fields.tokens), media_type=JSON)


def _detokenized(model: TextModel, tokens: Sequence[int]) -> bytes:
    check_ids(tokens, model.vocabulary, "`tokens`")
    return to_json({"prompt": model.tokenizer.decode(tokens)})


def _tokenized(model: TextModel, fields: TokenizeRequest, service: Service) -> bytes:
    ids = _ids(model, fields, service)
    body: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": ids}
    if fields.return_token_strs:
        body["token_strs"] = [model.tokenizer.token_bytes(one).decode(errors="replace") for one in ids]
    return to_json(body)


def _ids(model: TextModel, fields: TokenizeRequest, service: Service) -> Sequence[int]:
    if (fields.prompt is None) == (fields.messages is None):
        raise RequestError("prompt: give either `prompt` or `messages`", param="prompt")
    if fields.messages is not None:
        add = fields.add_generation_prompt
        prompt = model.chat_prompt(fields.messages, service.pixels, add_generation_prompt=add, any_length=True)
        return prompt.token_ids
    if not fields.prompt:
        return []
    check_length(len(fields.prompt), model.context, "prompt")
    return model.encode(fields.prompt, special_tokens=fields.add_special_tokens)
