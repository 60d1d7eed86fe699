"""Settings of the server."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from lang_core import ConfigError, checked_choices
from tapeline.server._patterns import is_host_pattern, is_origin

PrefixCache = Literal["per_key", "shared", "off"]
PREFIX_CACHES: Final[tuple[str, ...]] = get_args(PrefixCache)
"""Values of ``prefix_cache``: whose prefixes a request reuses."""


@checked_choices
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of the server.

    Attributes:
        host: address to listen at; by default only this machine can connect.
        allowed_hosts: further names by which requests may call the server: NAME, *.NAME, or * for any.
        cors_origins: origins of web pages on other sites that may send requests, or * for any.
        port: port to listen at; 0 takes a free one.
        api_keys: keys, one of which every request but those of /health must bring; none asks for none.
        prefix_cache: requests that reuse each other's prefixes: those with the same API key, all, or none. Without
            ``api_keys`` all requests count as one key.
        prefix_secret: secret from which the salts of API keys are made; None for a new one of this process.
        models_memory: largest memory of loaded models, in bytes; None for no limit. Models on demand are unloaded for
            it.
        adapters_dir: directory below which /v1/load_lora_adapter finds adapters; None refuses the route.
        model_aliases: pairs of a further name that requests may have, and the name of the model.
        strict_fields: True refuses unknown fields of requests, which are otherwise ignored and named in the response's
            header ``x-ignored-fields``.
        certificate: TLS certificate, a PEM file; None for plain HTTP.
        certificate_key: private key of the certificate, a PEM file; None if the certificate's file has it.
        max_body_bytes: largest body of a request.
        max_audio_bytes: largest sound file of a request.
        max_audio_seconds: longest sound of a request.
        max_images: pictures of a request.
        max_image_bytes: largest picture file of a request.
        max_image_pixels: most pixels of a picture.
        max_pixel_bytes: memory of the pixels of all pictures that wait or are looked at.
        max_json_depth: lists and objects inside each other that a body may have.
        max_tools: tools that a request may bring.
        max_schema_bytes: largest JSON schema, or grammar, of a request, and largest tool.
        max_connections: connections at a time; further ones are answered with 503.
        request_seconds: longest time of an answer, with its time in the queue.
        header_seconds: time in which the head of a request must come, and then its body.
        stall_seconds: time in which a client must read a part of its response.
        drain_seconds: time that running answers have when the server is told to end.
        watchdog_seconds: time without progress after which an engine with work counts as stuck; 0 never does.
        watch_seconds: time between two looks at the bundles' directories; 0 never looks.

    Raises:
        ConfigError: a number is out of its range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    prefix_cache: PrefixCache = "per_key"
    prefix_secret: bytes | None = field(default=None, repr=False)
    models_memory: int | None = None
    adapters_dir: Path | None = None
    model_aliases: tuple[tuple[str, str], ...] = ()
    strict_fields: bool = False
    certificate: Path | None = None
    certificate_key: Path | None = None
    max_body_bytes: int = 4 << 20
    max_audio_bytes: int = 25 << 20
    max_audio_seconds: float = 3600.0
    max_images: int = 16
    max_image_bytes: int = 16 << 20
    max_image_pixels: int = 1 << 25
    max_pixel_bytes: int = 1 << 30
    max_json_depth: int = 64
    max_tools: int = 128
    max_schema_bytes: int = 128 << 10
    max_connections: int = 1000
    request_seconds: float = 600.0
    header_seconds: float = 30.0
    stall_seconds: float = 60.0
    drain_seconds: float = 30.0
    watchdog_seconds: float = 60.0
    watch_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port={self.port} is out of range: give 0 to 65535")
        for host in self.allowed_hosts:
            if not is_host_pattern(host):
                raise ConfigError(
                    f"`allowed_hosts`: expected names such as chat.example.com, *.example.com or *; found {host!r}"
                )
        for origin in self.cors_origins:
            if not is_origin(origin):
                raise ConfigError(
                    "`cors_origins`: expected origins such as https://chat.example.com, in lower case and without a "
                    f"path, or *; found {origin!r}"
                )
        if self.models_memory is not None:
            _require("models_memory", self.models_memory, 1)
        for name in (
            "max_body_bytes",
            "max_audio_bytes",
            "max_images",
            "max_image_bytes",
            "max_image_pixels",
            "max_pixel_bytes",
            "max_json_depth",
            "max_tools",
            "max_schema_bytes",
            "max_connections",
        ):
            _require(name, getattr(self, name), 1)
        for name in ("drain_seconds", "watchdog_seconds", "watch_seconds"):
            _require(name, getattr(self, name), 0)
        for name in ("max_audio_seconds", "request_seconds", "header_seconds", "stall_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)!r} is out of range: give seconds, more than 0")


def _require(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise ConfigError(f"{name}={value!r} is out of range: give a number of at least {least}")
