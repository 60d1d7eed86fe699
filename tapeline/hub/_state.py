"""State of the hub's client: address, cache, login."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.utils import get_token

from lang_core import checked_choices
from tapeline.hub._listing import HubSettings


@checked_choices
@dataclass(frozen=True, slots=True)
class HubState:
    """Settings of the hub's client in this process.

    Attributes:
        endpoint: address of the hub, without a password.
        cache: directory of its files.
        offline: whether nothing is asked of the network.
        logged_in: whether there is a token; nothing checks that the hub takes it.
    """

    endpoint: str
    cache: Path
    offline: bool
    logged_in: bool


def hub_state() -> HubState:
    """Returns the settings of the environment and of ``hf auth login``, without using the network."""
    settings = HubSettings.from_environment()
    has_token = False
    with contextlib.suppress(OSError):  # a home directory that is none
        has_token = get_token() is not None
    return HubState(settings.shown, settings.cache, settings.offline, has_token)
