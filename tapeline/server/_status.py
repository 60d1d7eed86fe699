"""Routes that tell of the server: models, health, metrics, schemas, the page."""

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from generation import SAMPLING_FIELDS
from tapeline.server._errors import RequestError
from tapeline.server._events import to_json
from tapeline.server._generation import JSON
from tapeline.server._model import ServedModel, TextModel
from tapeline.server._models import ModelState
from tapeline.server._openapi import document
from tapeline.server._options import ServerOptions
from tapeline.server._requests import ModelRequest
from tapeline.server._service import Service, is_known, service_of
from tapeline.server._text_to_text_model import TextToTextModel
from tapeline.server._transcription_model import TranscriptionModel
from tapeline.server._verification import VerificationState

_PAGE: Final = files(__package__ or "").joinpath("page")
_ASSETS: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "markdown.js": "text/javascript",
    "vendor/marked.umd.js": "text/javascript",
    "vendor/purify.min.js": "text/javascript",
}
_ABSENT: Final = ("unloaded", "waiting", "loading")  # states of models on demand that are not loaded
_LISTED: Final = (*_ABSENT, "failed")
_IMAGE_LIMITS: Final = ("max_images", "max_image_bytes", "max_image_pixels", "max_body_bytes")
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


async def list_models(request: Request) -> Response:
    """Lists every model."""
    service = service_of(request)
    states = {state.name: state for state in service.models.states()}
    loaded = {model.name: model for model in service.models.loaded()}
    models = [_model(model, states.get(name), service.options) for name, model in loaded.items()]
    entries = {model["id"]: model for model in models}
    models += [{**entries[name], "id": alias} for alias, name in service.models.aliases.items() if name in entries]
    models += _adapters(service)
    models += [_absent(state) for name, state in states.items() if name not in loaded and state.state in _LISTED]
    return Response(to_json({"object": "list", "data": models}), media_type=JSON)


async def retrieve_model(request: Request) -> Response:
    """Tells of one model."""
    service = service_of(request)
    name: str = request.path_params["model"]
    states = {state.name: state for state in service.models.states()}
    state = states.get(service.models.aliases.get(name, name))
    if state is not None and state.state in _ABSENT:
        return Response(to_json(_absent(state)), media_type=JSON)
    model = service.models.named(name)
    return Response(to_json(_model(model, state, service.options)), media_type=JSON)


async def live(_: Request) -> Response:
    """Answers 200 while the process runs, also while it loads models or ends."""
    return Response(to_json({"status": "live"}), media_type=JSON)


async def health(request: Request) -> Response:
    """Answers 200 when the server can serve, else 503; while it loads, with the progress."""
    service = service_of(request)
    status = _status(service)
    body: dict[str, Any] = {"status": status}
    states = service.models.states()
    failed = [state for state in states if state.state == "failed"]
    faults = service.models.faults()
    verification = _verification(states)
    if verification is not None:
        body["verification"] = verification
    if status == "stuck":
        body["reason"] = next(iter(faults.values())) if is_known(request) else "an engine cannot answer"
        if is_known(request):
            body["models"] = [{"id": name, "state": "stuck", "reason": fault} for name, fault in faults.items()]
    elif status == "ready" and is_known(request):
        told = [{"id": state.name, "state": "failed", "reason": state.reason} for state in failed]
        told += [{"id": state.name, **_progress(state, named=True)} for state in states if state.step is not None]
        body |= {"models": told} if told else {}
    if status in ("loading", "failed"):
        running = next((state for state in states if state.state in ("loading", "failed")), states[0])
        body |= _progress(running, named=is_known(request))
        if is_known(request):
            body["models"] = [{"id": state.name, **_progress(state, named=True)} for state in states]
    return Response(to_json(body), 200 if status == "ready" else 503, media_type=JSON)


def _status(service: Service) -> str:
    if service.draining:
        return "draining"
    if service.models.ready:
        if _verification(service.models.states()) == "failed":
            return "failed"
        return "stuck" if service.models.faults() else "ready"
    return "loading" if service.models.failure is None else "failed"


def _verification(states: Sequence[ModelState]) -> VerificationState | None:
    """Returns the state of the verifications that went on after the loads: the worst; None if there was none."""
    known = {state.verification for state in states}
    return next((state for state in ("failed", "running", "passed") if state in known), None)


def _progress(state: ModelState, *, named: bool) -> dict[str, Any]:
    """Returns a model's state as JSON values.

    Args:
        state: the state.
        named: True writes the step, which may name the model and its files.
    """
    step = state.step
    if step is None:
        names = {"step": None, **({} if state.reason is None else {"reason": state.reason})} if named else {}
        return {"state": state.state, **names, "seconds": None, "seconds_left": None}
    counts = {"step": step.text, "done": step.done, "total": step.total} if named else {}
    left = None if step.seconds_left is None else round(step.seconds_left, 1)
    return {"state": state.state, **counts, "seconds": round(step.seconds, 1), "seconds_left": left}


async def metrics(request: Request) -> Response:
    """Returns the metrics."""
    return Response(service_of(request).metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})


async def openapi(request: Request) -> Response:
    """Returns the description of all routes."""
    return Response(to_json(document(strict=service_of(request).options.strict_fields)), media_type=JSON)


async def page(_: Request) -> Response:
    """Returns the page to chat on."""
    return Response(_PAGE.joinpath("index.html").read_bytes(), headers=_PAGE_HEADERS, media_type="text/html")


async def page_asset(request: Request) -> Response:
    """Returns a style sheet or a script of the page.

    Raises:
        RequestError: the page lacks the file.
    """
    name = request.path_params["file"]
    if name not in _ASSETS:
        raise RequestError(f"page/{name[:80]}: no such file of the page; available: {', '.join(_ASSETS)}", status=404)
    return Response(_PAGE.joinpath(name).read_bytes(), headers=_PAGE_HEADERS, media_type=_ASSETS[name])


def _model(model: ServedModel, state: ModelState | None, options: ServerOptions) -> dict[str, Any]:
    kind = "generate" if isinstance(model, TextModel) else "embed"
    if isinstance(model, TranscriptionModel):
        kind = "transcribe"
    elif isinstance(model, TextToTextModel):
        kind = "text_to_text"
    chat = isinstance(model, TextModel) and model.template is not None
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "tapeline",
        "max_model_len": model.context,
        "task": kind,
        "chat": chat,
        "images": _image_limits(model, options),
        "state": "ready" if state is None else state.state,
        "reload_failed": state is not None and state.reload_failed,
        "sampling": _sampling(model),
    }


def _adapters(service: Service) -> list[dict[str, Any]]:
    """Returns the entries of adapters: under their own names, or with the model's if several models have one."""
    entries = service.models.adapted()
    names = Counter(entry.adapter.name for entry in entries if entry.adapter is not None)
    listed: list[dict[str, Any]] = []
    for entry in entries:
        adapter, owner = entry.adapter, entry.owner
        if adapter is not None and owner is not None:
            alone = names[adapter.name] == 1 and adapter.name not in {model.name for model in service.models.loaded()}
            fields = {"id": adapter.name if alone else entry.name, "parent": owner.name, "root": owner.name}
            listed.append({**_model(entry, None, service.options), **fields, "created": int(adapter.created)})
    return listed


def _absent(state: ModelState) -> dict[str, Any]:
    """Returns the entry of a model that is not loaded."""
    reason = {} if state.reason is None else {"reason": state.reason}
    return {
        "id": state.name,
        "object": "model",
        "created": 0,
        "owned_by": "tapeline",
        "state": state.state,
        **({} if state.step is None else {"step": state.step.text}),
        **reason,
    }


async def load_model(request: Request) -> Response:
    """Loads a model on demand, also one that could not be loaded before."""
    service = service_of(request)
    fields = await service.read(request, ModelRequest)
    with service.models.wanted(fields.model) as source:
        if source is not None:
            await service.loads.load(source, again=True)
        else:
            service.models.named(fields.model)  # raises if there is none
    return Response(to_json({"success": True}), media_type=JSON)


async def unload_model(request: Request) -> Response:
    """Unloads a model on demand."""
    service = service_of(request)
    fields = await service.read(request, ModelRequest)
    await service.loads.unload(fields.model)
    return Response(to_json({"success": True}), media_type=JSON)


def _sampling(model: ServedModel) -> dict[str, float] | None:
    """Returns the sampling of requests that choose none; None for a model that does not generate text."""
    if not isinstance(model, TextModel):
        return None
    return {name: getattr(model.defaults, name) for name in SAMPLING_FIELDS}


def _image_limits(model: ServedModel, options: ServerOptions) -> dict[str, int] | None:
    """Returns the limits of a conversation's pictures; None of a model that takes none."""
    if not isinstance(model, TextModel) or model.pictures is None:
        return None
    return {name: getattr(options, name) for name in _IMAGE_LIMITS}
