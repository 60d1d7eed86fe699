"""State of the hub's client: where it asks, what it keeps, whether somebody is logged in."""

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
    """Returns what the environment and the login of ``hf auth login`` say; asks nothing of the network."""
    settings = HubSettings.from_environment()
    has_token = False
    with contextlib.suppress(OSError):  # a home directory that is none
        has_token = get_token() is not None
    return HubState(settings.shown, settings.cache, settings.offline, has_token)
