"""Models and adapters by their name on the hub: ``org/name[@revision]``, ``org/name:FILE.gguf``, ``org/name:Q4_K_M``.

>>> from tapeline.hub import parse_hub_name
>>> parse_hub_name("org/name@v1.0:Q4_K_M")
HubName(repository='org/name', revision='v1.0', file='Q4_K_M')

``resolve_model`` is the one place where a name becomes files. ``huggingface_hub`` does the transfers, into its own
cache and with its own login; it is imported when the first name of the hub is resolved.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tapeline.hub._names import HubError, HubName, ModelLocation, parse_hub_name
from tapeline.hub._resolve import check_model, resolve_adapter, resolve_model

if TYPE_CHECKING:
    from tapeline.hub._state import HubState, hub_state

__all__ = [
    "HubError",
    "HubName",
    "HubState",
    "ModelLocation",
    "check_model",
    "hub_state",
    "parse_hub_name",
    "resolve_adapter",
    "resolve_model",
]


def __getattr__(name: str) -> Any:
    """Imports what needs the hub's client when it is first asked for, because that import is slow."""
    if name in ("HubState", "hub_state"):
        return getattr(importlib.import_module("tapeline.hub._state"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
