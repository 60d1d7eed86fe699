"""Serves bundles over HTTP with an OpenAI-compatible API.

serve                           the demo model, at http://127.0.0.1:8000
serve MODEL [--slots N]         a model, which is exported into the cache at first use
serve BUNDLE [BUNDLE2]          bundles exported with --slots; their directory names are the model names
serve --models_dir=DIR          the bundles in a directory, each of which is loaded when a request names it

Each flag can also be set by an environment variable, such as TAPELINE_PORT for --port. The command line takes
precedence.

SIGTERM and Ctrl-C stop the server after the running requests; SIGHUP reloads the bundles.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from absl import flags

import tapeline
from generation.engine import EngineSettings
from lang_core import InputError
from tapeline.cli import ProgressEvent, parse_size, user_path
from tapeline.command._adapter_flags import (
    NamedAdapter,
    adapters_of,
    parse_named_adapter,
    refuse_other_models,
    table_sizes,
)
from tapeline.command._export_process import ExportProcess
from tapeline.command._model_flags import SERVED_SLOTS, define_model_flags
from tapeline.command._paths import check_bundle, check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.command._served_models import ServedBundle, ServedModels, models_of_directory, models_of_file
from tapeline.hub import check_model
from tapeline.runners import SLOTS
from tapeline.server import (
    PREFIX_CACHES,
    AdapterNames,
    DraftOptions,
    Loading,
    LoadProgress,
    Log,
    ModelSource,
    PrefixDirectory,
    ServerOptions,
    Verification,
    bundle_bytes,
    bundle_source,
    serve,
)

FLAGS: Final = flags.FlagValues()
VARIABLES: Final[list[str]] = []
OPERANDS: Final = (("model", "bundle"),)

_DEMO: Final = "demo"
# The demo model goes on from a text; so messages are joined.
_DEMO_TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
_DRAFTED: Final = 3
_OPTIONS: Final = ServerOptions()
_ENGINE: Final = EngineSettings()

_BUNDLE: Final = flags.DEFINE_multi_string("bundle", [], "Bundle directory.", flag_values=FLAGS)
_MODELS_DIR: Final = flags.DEFINE_string(
    "models_dir",
    None,
    "Directory of bundles; each is loaded when a request names it, and unloaded when its memory is needed.",
    flag_values=FLAGS,
)
_MODELS_FILE: Final = flags.DEFINE_string(
    "models_file",
    None,
    "TOML file of bundles that are loaded when requests name them, with settings of each model.",
    flag_values=FLAGS,
)
_MODELS_MEMORY: Final = flags.DEFINE_string(
    "models_memory",
    None,
    "Memory of loaded models, such as 8GiB. Default: that of --models_file, else no limit.",
    flag_values=FLAGS,
)
_MODELS_IDLE_SECONDS: Final = flags.DEFINE_float(
    "models_idle_seconds",
    0.0,
    "Time without requests after which a model that was loaded on demand is unloaded, in seconds; 0 is never.",
    lower_bound=0.0,
    flag_values=FLAGS,
)
_MODEL: Final = define_model_flags(FLAGS)
_SLOT_COUNT: Final = flags.DEFINE_integer(
    "slots",
    None,
    f"Maximum number of sequences the server decodes at once. Needs --model. Default: {SERVED_SLOTS}, and none for "
    "models that have no caches to share, such as embedders.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_HOST: Final = flags.DEFINE_string("host", _OPTIONS.host, "Address to listen on.", flag_values=FLAGS)
_PORT: Final = flags.DEFINE_integer("port", _OPTIONS.port, "Port to listen on; 0 picks a free port.", flag_values=FLAGS)
_ALLOWED_HOSTS: Final = flags.DEFINE_list(
    "allowed_hosts",
    [],
    "Additional values of the Host header to accept: NAME, *.NAME, or * for any.",
    flag_values=FLAGS,
)
_CORS_ORIGINS: Final = flags.DEFINE_list(
    "cors_origins",
    [],
    "Origins of web pages that may send requests, such as https://chat.example.com, or * for any.",
    flag_values=FLAGS,
)
_API_KEY_FILE: Final = flags.DEFINE_string(
    "api_key_file",
    None,
    "File with one API key per line. Requests must send one of the keys. Default: requests need no key.",
    flag_values=FLAGS,
)
_PREFIX_CACHE: Final = flags.DEFINE_enum(
    "prefix_cache",
    _OPTIONS.prefix_cache,
    list(PREFIX_CACHES),
    "Sharing of the prefix cache: among requests with the same API key, among all requests, or off.",
    flag_values=FLAGS,
)
_SERVED_NAMES: Final = flags.DEFINE_list(
    "served_model_name",
    [],
    "Model name in requests and responses, followed by aliases that requests may use. Default: the name of the "
    "bundle's directory or of the model's path.",
    flag_values=FLAGS,
)
_ADAPTER: Final = flags.DEFINE_multi_string(
    "adapter",
    [],
    "LoRA adapter that requests may choose, as NAME=DIR, or MODEL:NAME=DIR with several models. Needs a bundle "
    "exported with --adapters.",
    flag_values=FLAGS,
)
_ADAPTERS_DIR: Final = flags.DEFINE_string(
    "adapters_dir",
    None,
    "Directory of LoRA adapters that requests may load and unload while the server runs. Default: none may.",
    flag_values=FLAGS,
)
_STRICT_FIELDS: Final = flags.DEFINE_boolean(
    "strict_fields",
    _OPTIONS.strict_fields,
    "Reject requests with unknown fields. By default, unknown fields are ignored and listed in the response "
    "header x-ignored-fields.",
    flag_values=FLAGS,
)
_CERTIFICATE: Final = flags.DEFINE_string(
    "certificate", None, "TLS certificate (PEM file): serves HTTPS.", flag_values=FLAGS
)
_CERTIFICATE_KEY: Final = flags.DEFINE_string(
    "certificate_key",
    None,
    "Private key of the certificate (PEM file). Default: the key in the certificate's file.",
    flag_values=FLAGS,
)
_CHAT_TEMPLATE: Final = flags.DEFINE_string(
    "chat_template", None, "Chat template file that replaces the models' own templates.", flag_values=FLAGS
)
_MAX_WAITING: Final = flags.DEFINE_integer(
    "max_waiting",
    _ENGINE.max_waiting,
    "Maximum number of queued requests; further requests get status 429.",
    flag_values=FLAGS,
)
_MAX_BATCHED_TOKENS: Final = flags.DEFINE_integer(
    "max_batched_tokens",
    _ENGINE.max_batched_tokens,
    "Maximum number of prompt tokens that are processed between two decode steps.",
    flag_values=FLAGS,
)
_TARGET_ITL: Final = flags.DEFINE_float(
    "target_itl",
    _ENGINE.target_itl,
    "Target inter-token latency of running sequences, in seconds; prefill work is scheduled within it. Default: "
    "0.3, or a little more on slow machines.",
    flag_values=FLAGS,
)
_PREFIX_CACHE_MEMORY: Final = flags.DEFINE_string(
    "prefix_cache_memory", "256MiB", "Memory of the prefix cache, such as 256MiB; 0 disables it.", flag_values=FLAGS
)
_PREFIX_CACHE_DIR: Final = flags.DEFINE_string(
    "prefix_cache_dir",
    None,
    "Directory in which the prefix caches are saved when models are closed, and from which they are loaded.",
    flag_values=FLAGS,
)
_SPECULATE: Final = flags.DEFINE_string(
    "speculate",
    None,
    "Speculative decoding without a draft model: prompt_lookup[:N] proposes the tokens that followed the last N "
    "tokens (default 3) earlier in the request's text.",
    flag_values=FLAGS,
)
_DRAFT: Final = flags.DEFINE_string(
    "draft",
    None,
    "Draft-model bundle for speculative decoding. Must have the same number of slots.",
    flag_values=FLAGS,
)
_DRAFT_TOKENS: Final = flags.DEFINE_integer(
    "draft_tokens",
    None,
    f"Maximum number of draft tokens per step. Default: the number of tokens that verify_row takes; {_DRAFTED} with "
    "--model.",
    lower_bound=1,
    flag_values=FLAGS,
)
_DRAFT_ROWS: Final = flags.DEFINE_integer(
    "draft_rows",
    1,
    "Maximum number of running sequences with which speculative decoding is used. With more, one call decodes all "
    "sequences faster.",
    lower_bound=1,
    flag_values=FLAGS,
)
_LIMITS: Final = {
    name: flags.DEFINE_integer(name, getattr(_OPTIONS, name), text, flag_values=FLAGS)
    for name, text in {
        "max_body_bytes": "Maximum size of a request body, in bytes.",
        "max_audio_bytes": "Maximum size of an audio file, in bytes.",
        "max_images": "Maximum number of images per request.",
        "max_image_bytes": "Maximum size of an image file, in bytes; --max_body_bytes limits all images of a request.",
        "max_image_pixels": "Maximum number of pixels per image.",
        "max_pixel_bytes": "Memory for the pixels of queued and running images, in bytes.",
        "max_json_depth": "Maximum nesting depth of JSON in a request body.",
        "max_tools": "Maximum number of tools per request.",
        "max_schema_bytes": "Maximum size of a JSON schema or grammar, in bytes.",
        "max_connections": "Maximum number of concurrent connections.",
    }.items()
}
_SECONDS: Final = {
    name: flags.DEFINE_float(name, getattr(_OPTIONS, name), text, flag_values=FLAGS)
    for name, text in {
        "max_audio_seconds": "Maximum duration of an audio file, in seconds.",
        "request_seconds": "Timeout of a request in seconds, including its time in the queue.",
        "header_seconds": "Timeout for receiving the header of a request, and then its body, in seconds.",
        "stall_seconds": "Time after which a client that reads nothing of its response is disconnected, in seconds.",
        "drain_seconds": "Time that running requests get to finish at shutdown, in seconds.",
        "watchdog_seconds": "Time without progress after which /health reports a stuck model, in seconds; 0 is never.",
        "watch_seconds": "Interval between checks for changed bundles, in seconds; 0 disables the checks.",
    }.items()
}


def main() -> None:
    """Serves until the process is told to end."""
    check_bundle("draft", _DRAFT.value)
    check_readable("certificate", [_CERTIFICATE.value] if _CERTIFICATE.value else ())
    check_readable("certificate_key", [_CERTIFICATE_KEY.value] if _CERTIFICATE_KEY.value else ())
    served, log = _served(), Log()
    prefixes = None
    if _PREFIX_CACHE_DIR.value is not None:
        prefixes = PrefixDirectory.open(user_path(_PREFIX_CACHE_DIR.value), log)
    options = dataclasses.replace(_options(served), prefix_secret=None if prefixes is None else prefixes.secret)
    if _SERVED_NAMES.value:
        name, *aliases = _served_names()
        options = dataclasses.replace(options, model_aliases=tuple((alias, name) for alias in aliases))
    serve(_sources(log, served, prefixes), options, log=log, on_listening=lambda address: print(address, flush=True))


def _served() -> ServedModels | None:
    """Returns the models of ``models_dir`` or ``models_file``; None if neither is there.

    Raises:
        InputError: both are there, or a flag that goes with them alone, or they have no models.
    """
    if _MODELS_DIR.value is not None and _MODELS_FILE.value is not None:
        raise InputError("give either `models_dir` or `models_file`")
    if _MODELS_FILE.value is not None:
        return models_of_file(user_path(_MODELS_FILE.value))
    if _MODELS_DIR.value is not None:
        return models_of_directory(user_path(_MODELS_DIR.value))
    for holder in (_MODELS_MEMORY, _MODELS_IDLE_SECONDS):
        if holder.present:
            raise InputError(f"`{holder.name}` goes with `models_dir` or `models_file`")
    return None


def _options(served: ServedModels | None) -> ServerOptions:
    others: dict[str, Any] = {
        holder.name: holder.value for holder in (_PREFIX_CACHE, _STRICT_FIELDS, *_LIMITS.values(), *_SECONDS.values())
    }
    return ServerOptions(
        host=_HOST.value,
        port=_PORT.value,
        allowed_hosts=tuple(_ALLOWED_HOSTS.value),
        cors_origins=tuple(_CORS_ORIGINS.value),
        api_keys=_api_keys(),
        certificate=_path(_CERTIFICATE.value),
        certificate_key=_path(_CERTIFICATE_KEY.value),
        models_memory=_models_memory(served),
        adapters_dir=_path(_ADAPTERS_DIR.value),
        model_aliases=_aliases(served),
        **others,
    )


def _adapters() -> list[NamedAdapter]:
    return [parse_named_adapter(text) for text in _ADAPTER.value]


def _served_names() -> list[str]:
    """Returns the names of the model that is served.

    Raises:
        InputError: there are several models, or a name is empty or comes twice.
    """
    names = [name.strip() for name in _SERVED_NAMES.value]
    if _MODELS_DIR.value is not None or _MODELS_FILE.value is not None:
        raise InputError("`served_model_name` goes with one model: give `aliases` in `models_file`")
    if len(_BUNDLE.value) > 1:
        raise InputError("`served_model_name` goes with one model: rename the directories of several bundles")
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"`served_model_name`: expected different names, separated by commas; found {names}")
    return names


def _served_name(own: str) -> str:
    """Returns the name of a model: that of the flag, or its own."""
    return _SERVED_NAMES.value[0].strip() if _SERVED_NAMES.value else own


def _aliases(served: ServedModels | None) -> tuple[tuple[str, str], ...]:
    return () if served is None else tuple((alias, one.name) for one in served.models for alias in one.aliases)


def _models_memory(served: ServedModels | None) -> int | None:
    if _MODELS_MEMORY.value is not None:
        return parse_size("models_memory", _MODELS_MEMORY.value)
    return None if served is None else served.memory


def _sources(log: Log, served: ServedModels | None, prefixes: PrefixDirectory | None) -> Sequence[ModelSource]:
    """Returns the sources of the served models: bundles, models on demand, a model, or the demo model."""
    if not _BUNDLE.value and served is None:
        return [_model_source(log, prefixes)]
    if _MODEL.model.value is not None:
        others = "bundle" if served is None else "models_dir" if _MODELS_DIR.value is not None else "models_file"
        raise InputError(f"give either `{others}` or `model`")
    if _SLOT_COUNT.value is not None:
        raise InputError("`slots` goes with `model`; a `bundle` is exported already")
    _MODEL.refuse()
    sources = _bundle_sources([user_path(text) for text in _BUNDLE.value], prefixes)
    on_demand = [] if served is None else [_served_source(one, prefixes) for one in served.models]
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"`bundle`: two directories are called {twice}, which requests could not tell apart: rename one"
        )
    names += [name for one in served.models for name in (one.name, *one.aliases)] if served is not None else []
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two models are called {twice}, which requests could not tell apart: rename one")
    sources += on_demand
    refuse_other_models(_adapters(), [source.name for source in sources])
    _check_memory(sources, _models_memory(served))
    return sources


def _check_memory(sources: Sequence[ModelSource], memory: int | None) -> None:
    """Refuses models that never fit into the memory beside those that stay loaded."""
    kept = sum(source.nbytes for source in sources if not source.on_demand)
    for source in sources:
        needed = kept + source.nbytes if source.on_demand else kept
        if memory is not None and needed > memory:
            raise InputError(
                f"models_memory={memory}: {source.name} needs {source.nbytes} bytes and all models that stay loaded "
                f"{kept}: give at least {needed}, or leave models out"
            )


def _served_source(one: ServedBundle, prefixes: PrefixDirectory | None) -> ModelSource:
    """Returns the source of a model on demand; a damaged bundle is refused now, and not at its first request."""
    bundle = tapeline.Bundle(one.bundle)
    template = _template() if one.chat_template is None else _text("chat_template", str(one.chat_template))
    loading = _loading(template, prefixes)
    engine = {
        "max_waiting": one.max_waiting,
        "max_batched_tokens": one.max_batched_tokens,
        "target_itl": one.target_itl,
        "store_bytes": one.prefix_cache_memory,
    }
    settings = {name: value for name, value in engine.items() if value is not None}
    adapters = {**one.adapters, **adapters_of(_adapters(), one.name, alone=False)}
    drafts = _served_drafts(one, loading.drafts if SLOTS in bundle.config.model else None)
    loading = dataclasses.replace(
        loading,
        engine=dataclasses.replace(loading.engine, **settings),
        drafts=drafts,
        adapters=AdapterNames(adapters),
    )
    idle = _MODELS_IDLE_SECONDS.value if one.idle_seconds is None or _MODELS_IDLE_SECONDS.present else one.idle_seconds
    return dataclasses.replace(
        bundle_source(one.name, partial(tapeline.Bundle, one.bundle), loading, one.bundle),
        on_demand=not one.pinned,
        nbytes=bundle_bytes(bundle, loading),
        idle_seconds=idle,
    )


def _served_drafts(one: ServedBundle, default: DraftOptions | None) -> DraftOptions | None:
    """Returns the speculation of a model: its own, or that of the server.

    Raises:
        InputError: it has settings of drafts, and no drafts.
    """
    if one.speculate is None and one.draft is None:
        if one.draft_tokens is not None or one.draft_rows is not None:
            raise InputError(f"models.{one.name}: draft_tokens and draft_rows go with speculate or draft")
        return default
    return DraftOptions(
        speculate=one.speculate, draft=one.draft, tokens=one.draft_tokens, rows=one.draft_rows or _DRAFT_ROWS.value
    )


def _bundle_sources(paths: Sequence[Path], prefixes: PrefixDirectory | None) -> list[ModelSource]:
    """Returns the sources of bundles; other directories are refused before anything is loaded.

    Drafts go with the answers of bundles with slots. If none has any, they are refused when it is loaded.
    """
    bundles = [tapeline.Bundle(path) for path in paths]
    slots = [SLOTS in bundle.config.model for bundle in bundles]
    loading = _loading(_template(), prefixes)
    others = dataclasses.replace(loading, drafts=None) if any(slots) else loading
    sources: list[ModelSource] = []
    for path, bundle, has_slots in zip(paths, bundles, slots, strict=True):
        name = _served_name(path.resolve().name)
        adapters = adapters_of(_adapters(), name, alone=len(paths) == 1)
        chosen = dataclasses.replace(loading if has_slots else others, adapters=AdapterNames(adapters))
        source = bundle_source(name, partial(tapeline.Bundle, path), chosen, path)
        sources.append(dataclasses.replace(source, nbytes=bundle_bytes(bundle, chosen)))
    return sources


def _model_source(log: Log, prefixes: PrefixDirectory | None) -> ModelSource:
    """Returns the source of a model, which is exported when it is loaded, unless the cache has it."""
    name = _MODEL.model.value or _DEMO
    template = _DEMO_TEMPLATE if name == _DEMO and _CHAT_TEMPLATE.value is None else _template()

    if name != _DEMO:
        check_model(name, user_path(name))

    progress, verification = LoadProgress(), Verification()

    def told(event: ProgressEvent) -> None:
        if verification.state != "running":  # the load goes on beside it
            progress(event)
        if event.done is None or event.step is not None:
            log.info("export", step=str(event))

    process = ExportProcess()  # that can be ended, and whose memory is not the server's

    def bundle() -> tapeline.Bundle:
        verified = None if _drafts() is None else (_DRAFT_TOKENS.value or _DRAFTED) + 1
        takes = _ADAPTERS_DIR.value is not None or adapters
        return _MODEL.bundle(
            _PLACE.place(),
            told,
            model=_DEMO,
            slots=_SLOT_COUNT.value,
            slots_if_any=SERVED_SLOTS if _SLOT_COUNT.value is None else None,
            verify_tokens=verified,
            adapters=table_sizes(adapters) if takes else None,
            process=process,
            follower=verification,
        )

    path = Path(name)
    name = _served_name(path.stem if path.suffix == ".gguf" else path.name)
    adapters = adapters_of(_adapters(), name, alone=True)
    refuse_other_models(_adapters(), [name])
    loading = dataclasses.replace(_loading(template, prefixes), adapters=AdapterNames(adapters))
    return bundle_source(name, bundle, loading, end=process.end, progress=progress, verification=verification)


def _loading(template: str | None, prefixes: PrefixDirectory | None) -> Loading:
    engine = EngineSettings(
        max_waiting=_MAX_WAITING.value,
        max_batched_tokens=_MAX_BATCHED_TOKENS.value,
        target_itl=_TARGET_ITL.value,
        store_bytes=0
        if _PREFIX_CACHE_MEMORY.value == "0"
        else parse_size("prefix_cache_memory", _PREFIX_CACHE_MEMORY.value),
    )
    return Loading(place=_PLACE.place(), engine=engine, template=template, drafts=_drafts(), prefixes=prefixes)


def _drafts() -> DraftOptions | None:
    if _SPECULATE.value is None and _DRAFT.value is None:
        given = [holder.name for holder in (_DRAFT_TOKENS, _DRAFT_ROWS) if holder.present]
        if given:
            raise InputError(f"`{given[0]}` goes with `speculate` or `draft`")
        return None
    draft = _path(_DRAFT.value)
    return DraftOptions(speculate=_SPECULATE.value, draft=draft, tokens=_DRAFT_TOKENS.value, rows=_DRAFT_ROWS.value)


def _template() -> str | None:
    return None if _CHAT_TEMPLATE.value is None else _text("chat_template", _CHAT_TEMPLATE.value)


def _api_keys() -> tuple[str, ...]:
    """Returns the keys of the file that the flag names: one per line, without empty lines and comments."""
    if _API_KEY_FILE.value is None:
        return ()
    lines = map(str.strip, _text("api_key_file", _API_KEY_FILE.value).splitlines())
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise InputError(f"api_key_file={_API_KEY_FILE.value}: no key in it: write one per line")
    return keys


def _text(option: str, name: str) -> str:
    try:
        return user_path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option}={name}: cannot be read ({error}): name a text file") from error


def _path(name: str | None) -> Path | None:
    return None if name is None else user_path(name)
