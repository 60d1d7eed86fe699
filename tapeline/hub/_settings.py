"""Settings of huggingface_hub that downloads keep to."""

import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from huggingface_hub import constants


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Place of the hub and of its cache, and bounds on waiting.

    Attributes:
        endpoint: address of the hub.
        cache: directory of the hub's cache.
        offline: True asks nothing of the network.
        stall_seconds: longest time without any byte.
        answer_seconds: longest time for one answer of the hub's API.
        attempts: number of times that a question is asked which the hub answers with 429 or 5xx.
        pause_seconds: time between them.
    """

    endpoint: str
    cache: Path
    offline: bool = False
    stall_seconds: float = 60.0
    answer_seconds: float = 20.0
    attempts: int = 3
    pause_seconds: float = 1.0

    @classmethod
    def from_environment(cls) -> Self:
        """Returns what HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE say, as huggingface_hub reads them."""
        return cls(constants.ENDPOINT, Path(constants.HF_HUB_CACHE), offline=constants.is_offline_mode())

    @property
    def shown(self) -> str:
        """Address of the hub for messages, without a password in it."""
        parts = urllib.parse.urlsplit(self.endpoint)
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def storage(self, repository: str) -> Path:
        """Returns the directory of a repository in the cache."""
        return self.cache / f"models--{repository.replace('/', '--')}"

    def snapshot(self, repository: str, commit: str) -> Path:
        """Returns the directory of a commit's files in the cache."""
        return self.storage(repository) / "snapshots" / commit
