"""Flag of the form in which a command prints its result: text for a person, or one JSON document."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

import numpy as np
from absl import flags

FORMATS: Final = ("text", "json")


class FormatFlag:
    """Holder of ``--format``.

    Args:
        values: flags of the command, in which it is defined.
    """

    def __init__(self, values: flags.FlagValues) -> None:
        self._holder: Final = flags.DEFINE_enum(
            "format",
            "text",
            list(FORMATS),
            "Output format. json writes one JSON document to stdout and everything else to stderr.",
            flag_values=values,
        )

    @property
    def is_json(self) -> bool:
        """Returns whether a JSON document was asked for."""
        return self._holder.value == "json"


def put_json(document: Any) -> None:
    """Prints a document on stdout."""
    print(json_text(document), end="", flush=True)


def json_text(document: Any) -> str:
    """Returns a document as text that every reader of JSON takes.

    >>> print(json_text({"file": PurePath("a"), "scores": np.float32([1, np.nan])}), end="")
    {
      "file": "a",
      "scores": [
        1.0,
        null
      ]
    }
    """
    return json.dumps(_plain(document), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Returns a value in types of JSON, which has neither NaN nor infinities: they become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, PurePath) else value
