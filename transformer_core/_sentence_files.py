"""Files of a sentence-transformers directory: their names, its modules, the settings of texts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields, json_array

_MOST_MODULES: Final = 12
_TRANSFORMER: Final = "Transformer"
_OURS: Final = "sentence_transformers."

SENTENCE_FILES: Final = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "1_LogitScore/config.json",
    *(
        f"{place}_{kind}/config.json"
        for place in range(1, _MOST_MODULES)
        for kind in ("Dense", "LayerNorm", "MultiVectorMask")
    ),
)
"""Files beside config.json that describe the pooling, or the score of a reranker."""

SENTENCE_WEIGHTS: Final = tuple(
    f"{place}_{kind}/model.safetensors" for place in range(1, _MOST_MODULES) for kind in ("Dense", "LayerNorm")
)
"""Files beside the model's with the weights of modules after the pooling."""

SENTENCE_CONFIGS: Final = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file with the settings of a Transformer module; the first that is there counts."""

MODULES_FILE: Final = "modules.json"
"""Name of the file that lists the modules of a sentence-transformers model."""


@dataclass(frozen=True, slots=True)
class SentenceModule:
    """Entry of modules.json.

    Attributes:
        place: its number.
        kind: last part of the name of its class, such as ``Pooling``.
        path: directory of its files, relative to modules.json; empty for that directory itself.
    """

    place: int
    kind: str
    path: str

    @property
    def own_path(self) -> str:
        """Directory in the layout that models are read from: ``1_Pooling``; empty for the Transformer."""
        return "" if self.kind == _TRANSFORMER else f"{self.place}_{self.kind}"


def read_modules(directory: str | os.PathLike[str]) -> tuple[SentenceModule, ...] | None:
    """Reads modules.json of a sentence-transformers directory; None without that file.

    Raises:
        ConfigError: the file is damaged, or names a directory outside of its own.
    """
    path = os.path.join(os.fspath(directory), MODULES_FILE)
    if not os.path.exists(path):
        return None
    return tuple(_module(path, place, entry) for place, entry in enumerate(json_array(path, "fetch the file again")))


def _module(path: str, place: int, entry: Any) -> SentenceModule:
    name = entry.get("type") if isinstance(entry, Mapping) else None
    if not isinstance(name, str):
        raise ConfigError(f"{path}: expected objects with a field 'type'; found {entry!r}: fetch the file again")
    kind = name.rpartition(".")[2]
    if kind != _TRANSFORMER and not name.startswith(_OURS):
        raise ConfigError(
            f"{path}: module {place} is a {name}, code of the model's own repository, which is never run: expected "
            f"modules of {_OURS[:-1]}"
        )
    module = SentenceModule(place, kind, "")
    folder = entry.get("path", module.own_path)
    parts = folder.replace("\\", "/").split("/") if isinstance(folder, str) else [".."]
    if ".." in parts or os.path.isabs(str(folder)):
        raise ConfigError(f"{path}: module {kind}: expected a path below {os.path.dirname(path)}; found {folder!r}")
    return SentenceModule(place, kind, "/".join(part for part in parts if part not in ("", ".")))


def read_transformer_settings(directory: str | os.PathLike[str]) -> ConfigFields:
    """Reads sentence_bert_config.json, or the file of an older name; without one, or a modules.json, it is empty.

    Raises:
        ConfigError: the file is damaged.
    """
    folder = os.fspath(directory)
    if os.path.exists(os.path.join(folder, MODULES_FILE)):
        for name in SENTENCE_CONFIGS:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return config_fields(path, "fetch the file again")
    return ConfigFields({}, os.path.join(folder, SENTENCE_CONFIGS[0]))
