"""Routes that load and unload LoRA adapters while the server runs, in vLLM's form."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._adapters import ModelAdapters
from tapeline.server._errors import RequestError
from tapeline.server._requests import LoadAdapterRequest, UnloadAdapterRequest
from tapeline.server._service import Service, in_thread, model_of, service_of

_PLAIN = "text/plain"


async def load_adapter(request: Request) -> Response:
    """Loads an adapter of a model from a directory of PEFT."""
    service = service_of(request)
    fields = await service.read(request, LoadAdapterRequest)
    path = _path_of(service, fields.lora_path)
    adapters = await _adapters_of(request, fields.model or fields.base_model_name)
    _check_name(service, fields.lora_name)
    await in_thread(adapters.load, fields.lora_name, path)
    return Response(f"Success: LoRA adapter '{fields.lora_name}' added successfully.", media_type=_PLAIN)


async def unload_adapter(request: Request) -> Response:
    """Unloads an adapter of a model; running answers end as they would."""
    service = service_of(request)
    fields = await service.read(request, UnloadAdapterRequest)
    if service.options.adapters_dir is None:
        raise _refusal()
    adapters = await _adapters_of(request, fields.model)
    await in_thread(adapters.unload, fields.lora_name)
    return Response(f"Success: LoRA adapter '{fields.lora_name}' removed successfully.", media_type=_PLAIN)


async def _adapters_of(request: Request, name: str | None) -> ModelAdapters:
    """Returns the adapters of a model, or of the only one that takes some.

    Raises:
        RequestError: there is none, or it takes none.
    """
    service = service_of(request)
    model = await model_of(request, service.models.adaptable, name)
    if model.adapters is None:
        raise RequestError(f"model {model.name!r} takes no adapters: export its bundle with adapters=4", param="model")
    return model.adapters


def _path_of(service: Service, text: str) -> Path:
    """Returns the directory of an adapter, which is below the server's directory of adapters.

    Raises:
        RequestError: it is not, or the server has no such directory.
    """
    base = service.options.adapters_dir
    if base is None:
        raise _refusal()
    base = base.resolve()
    path = (base / text).resolve()
    if not path.is_relative_to(base) or path == base:
        raise RequestError(
            "lora_path: expected a directory below the server's directory of adapters (adapters_dir)",
            status=403,
            param="lora_path",
        )
    if not path.is_dir():
        raise RequestError("lora_path: there is no such directory of an adapter", status=404, param="lora_path")
    return path


def _check_name(service: Service, name: str) -> None:
    """Refuses names that could not be told from those of models.

    Raises:
        RequestError: the name is one of these.
    """
    models = {state.name for state in service.models.states()} | set(service.models.aliases)
    if name in models or ":" in name or not name.strip():
        raise RequestError(
            f"lora_name: expected a name without a colon that no model has; found {name!r}", param="lora_name"
        )


def _refusal() -> RequestError:
    return RequestError(
        "adapters are loaded while the server runs if it was started with adapters_dir: it was not",
        status=403,
        code="adapters_not_allowed",
    )
