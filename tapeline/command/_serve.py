"""Serves bundles over HTTP, as OpenAI's API has it.

serve                           the demo model, at http://127.0.0.1:8000
serve MODEL [--slots N]         a model, which is exported into the cache first
serve BUNDLE [BUNDLE2]          bundles exported with --slots; a request names one by its directory's name

Each flag can be set by a variable of the environment, such as TAPELINE_PORT for --port; the command line wins.

SIGTERM and Ctrl-C end the server when the answers that run have ended, SIGHUP loads the bundles again.
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
from tapeline.command._export_process import ExportProcess
from tapeline.command._model_flags import define_model_flags
from tapeline.command._paths import check_bundle, check_readable
from tapeline.command._place_flags import define_place_flags
from tapeline.hub import check_model
from tapeline.running import SLOTS
from tapeline.server import (
    PREFIX_CACHES,
    DraftOptions,
    Loading,
    LoadProgress,
    Log,
    ModelSource,
    ServerOptions,
    Verification,
    bundle_source,
    serve,
)

FLAGS: Final = flags.FlagValues()
VARIABLES: Final[list[str]] = []
OPERANDS: Final = (("model", "bundle"),)

_DEMO: Final = "demo"
# The demo model goes on from a text; so messages are joined.
_DEMO_TEMPLATE: Final = "{% for message in messages %}{{ message.content }}{% endfor %}"
_SLOTS: Final = 4
_DRAFTED: Final = 3
_OPTIONS: Final = ServerOptions()
_ENGINE: Final = EngineSettings()

_BUNDLE: Final = flags.DEFINE_multi_string("bundle", [], "A bundle's directory, once for each.", flag_values=FLAGS)
_MODEL: Final = define_model_flags(FLAGS)
_SLOT_COUNT: Final = flags.DEFINE_integer(
    "slots",
    None,
    f"With --model: answers that are made at once; {_SLOTS} by default.",
    lower_bound=1,
    flag_values=FLAGS,
)
_PLACE: Final = define_place_flags(FLAGS)
_HOST: Final = flags.DEFINE_string("host", _OPTIONS.host, "Address to listen at.", flag_values=FLAGS)
_PORT: Final = flags.DEFINE_integer("port", _OPTIONS.port, "Port to listen at; 0 takes a free one.", flag_values=FLAGS)
_ALLOWED_HOSTS: Final = flags.DEFINE_list(
    "allowed_hosts",
    [],
    "Further names by which requests may call the server: NAME, *.NAME, or * for any.",
    flag_values=FLAGS,
)
_CORS_ORIGINS: Final = flags.DEFINE_list(
    "cors_origins",
    [],
    "Origins of web pages on other sites that may send requests, such as https://chat.example.com, or * for any.",
    flag_values=FLAGS,
)
_API_KEY_FILE: Final = flags.DEFINE_string(
    "api_key_file", None, "A file with an API key per line, one of which each request must bring.", flag_values=FLAGS
)
_PREFIX_CACHE: Final = flags.DEFINE_enum(
    "prefix_cache",
    _OPTIONS.prefix_cache,
    list(PREFIX_CACHES),
    "Requests that reuse the KV cache of each other's prompts: those with the same API key, all, or none.",
    flag_values=FLAGS,
)
_SERVED_NAMES: Final = flags.DEFINE_list(
    "served_model_name",
    [],
    "Name of the model in requests and responses, and further names that requests may have. Default: that of its path.",
    flag_values=FLAGS,
)
_STRICT_FIELDS: Final = flags.DEFINE_boolean(
    "strict_fields",
    _OPTIONS.strict_fields,
    "Refuse unknown fields of requests. By default they are ignored and named in the header x-ignored-fields.",
    flag_values=FLAGS,
)
_CERTIFICATE: Final = flags.DEFINE_string(
    "certificate", None, "A PEM file with a TLS certificate: serve HTTPS.", flag_values=FLAGS
)
_CERTIFICATE_KEY: Final = flags.DEFINE_string(
    "certificate_key", None, "The certificate's private key, where its own file has none.", flag_values=FLAGS
)
_CHAT_TEMPLATE: Final = flags.DEFINE_string(
    "chat_template", None, "A file with a chat template, in place of the models' own.", flag_values=FLAGS
)
_MAX_WAITING: Final = flags.DEFINE_integer(
    "max_waiting", _ENGINE.max_waiting, "Requests that may wait; one more is answered with 429.", flag_values=FLAGS
)
_TICK_TOKENS: Final = flags.DEFINE_integer(
    "tick_tokens", _ENGINE.tick_tokens, "Tokens of prompts between two steps of running answers.", flag_values=FLAGS
)
_STALL: Final = flags.DEFINE_float(
    "stall",
    _ENGINE.stall,
    "Seconds from one token of a running answer to the next. By default 0.3, or a little more on slow machines.",
    flag_values=FLAGS,
)
_PREFIX_STORE: Final = flags.DEFINE_string(
    "prefix_store", "256MiB", "Memory for beginnings of prompts, to be used again; 0 for none.", flag_values=FLAGS
)
_SPECULATE: Final = flags.DEFINE_string(
    "speculate",
    None,
    "prompt_lookup[:N]: verify what followed the last N tokens (3) earlier in a request's text.",
    flag_values=FLAGS,
)
_DRAFT: Final = flags.DEFINE_string(
    "draft",
    None,
    "Verify what this bundle, with as many slots, of a smaller model, finds likeliest.",
    flag_values=FLAGS,
)
_DRAFT_TOKENS: Final = flags.DEFINE_integer(
    "draft_tokens",
    None,
    f"How many tokens are verified at once, at most; by default as many as score_row takes, {_DRAFTED} with --model.",
    lower_bound=1,
    flag_values=FLAGS,
)
_DRAFT_ROWS: Final = flags.DEFINE_integer(
    "draft_rows",
    1,
    "Answers that may run at once while drafts are made: a draft costs a call, which otherwise serves all answers.",
    lower_bound=1,
    flag_values=FLAGS,
)
_LIMITS: Final = {
    name: flags.DEFINE_integer(name, getattr(_OPTIONS, name), text, flag_values=FLAGS)
    for name, text in {
        "max_body_bytes": "Largest body of a request.",
        "max_audio_bytes": "Largest sound file of a request.",
        "max_images": "Pictures of a request.",
        "max_image_bytes": "Largest picture file of a request; --max_body_bytes holds for all of them.",
        "max_image_pixels": "Most pixels of a picture.",
        "max_pixel_bytes": "Memory of the pixels of all pictures that wait or are looked at.",
        "max_json_depth": "Lists and objects inside each other that a body may have.",
        "max_tools": "Tools that a request may bring.",
        "max_schema_bytes": "Largest JSON schema or grammar of a request.",
        "max_connections": "Connections at a time.",
    }.items()
}
_SECONDS: Final = {
    name: flags.DEFINE_float(name, getattr(_OPTIONS, name), text, flag_values=FLAGS)
    for name, text in {
        "max_audio_seconds": "Longest sound of a request.",
        "request_seconds": "Longest time of an answer, with its time in the queue.",
        "header_seconds": "Time in which the head of a request must come, and then its body.",
        "stall_seconds": "Time in which a client must read some of what it is sent.",
        "drain_seconds": "Time that running answers have when the server is told to end.",
        "watchdog_seconds": "Time without progress after which /health says that a model is stuck; 0 for never.",
        "watch_seconds": "Time between two looks at the bundles' directories; 0 never looks.",
    }.items()
}


def main() -> None:
    """Serves until the process is told to end."""
    check_bundle("draft", _DRAFT.value)
    check_readable("certificate", [_CERTIFICATE.value] if _CERTIFICATE.value else ())
    check_readable("certificate_key", [_CERTIFICATE_KEY.value] if _CERTIFICATE_KEY.value else ())
    options, log = _options(), Log()
    if _SERVED_NAMES.value:
        name, *aliases = _served_names()
        options = dataclasses.replace(options, model_aliases=tuple((alias, name) for alias in aliases))
    serve(_sources(log), options, log=log, on_listening=lambda address: print(address, flush=True))


def _options() -> ServerOptions:
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
        **others,
    )


def _served_names() -> list[str]:
    """Returns the names of the model that is served.

    Raises:
        InputError: there are several models, or a name is empty or comes twice.
    """
    names = [name.strip() for name in _SERVED_NAMES.value]
    if len(_BUNDLE.value) > 1:
        raise InputError("`served_model_name` goes with one model: rename the directories of several bundles")
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"`served_model_name`: expected different names, separated by commas; found {names}")
    return names


def _served_name(own: str) -> str:
    """Returns the name of a model: that of the flag, or its own."""
    return _SERVED_NAMES.value[0].strip() if _SERVED_NAMES.value else own


def _sources(log: Log) -> Sequence[ModelSource]:
    """Returns what is to be served: bundles, or a model, or the demo model."""
    if not _BUNDLE.value:
        return [_model_source(log)]
    if _MODEL.model.value is not None:
        raise InputError("give either `bundle` or `model`")
    if _SLOT_COUNT.value is not None:
        raise InputError("`slots` goes with `model`; a `bundle` is exported already")
    _MODEL.refuse()
    sources = _bundle_sources([user_path(text) for text in _BUNDLE.value])
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"`bundle`: two directories are called {twice}, which requests could not tell apart: rename one"
        )
    return sources


def _bundle_sources(paths: Sequence[Path]) -> list[ModelSource]:
    """Returns the sources of bundles; what is no bundle is refused before anything is loaded.

    Drafts go with the answers of bundles with slots. Where none has any, they are refused as it is loaded.
    """
    slots = [SLOTS in tapeline.Bundle(path).config.model for path in paths]
    loading = _loading(_template())
    others = dataclasses.replace(loading, drafts=None) if any(slots) else loading
    return [
        bundle_source(
            _served_name(path.resolve().name), partial(tapeline.Bundle, path), loading if has_slots else others, path
        )
        for path, has_slots in zip(paths, slots, strict=True)
    ]


def _model_source(log: Log) -> ModelSource:
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
        scored = None if _drafts() is None else (_DRAFT_TOKENS.value or _DRAFTED) + 1
        slots = _SLOT_COUNT.value or _SLOTS
        return _MODEL.bundle(
            _PLACE.place(),
            told,
            model=_DEMO,
            slots=slots,
            score_tokens=scored,
            process=process,
            follower=verification,
        )

    path = Path(name)
    name = _served_name(path.stem if path.suffix == ".gguf" else path.name)
    return bundle_source(
        name, bundle, _loading(template), end=process.end, progress=progress, verification=verification
    )


def _loading(template: str | None) -> Loading:
    engine = EngineSettings(
        max_waiting=_MAX_WAITING.value,
        tick_tokens=_TICK_TOKENS.value,
        stall=_STALL.value,
        store_bytes=0 if _PREFIX_STORE.value == "0" else parse_size("prefix_store", _PREFIX_STORE.value),
    )
    return Loading(place=_PLACE.place(), engine=engine, template=template, drafts=_drafts())


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
