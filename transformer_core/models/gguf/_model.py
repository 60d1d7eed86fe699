"""GGUF files as checkpoints of models."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Final

from lang_core import ConfigError, checked_choices
from transformer_core._names import CONFIG_FILE
from transformer_core.checkpoints import RecipeOf
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models import DecoderConfig
from transformer_core.models.gguf._config import IGNORABLE, config_values_of, description_of, known_architecture
from transformer_core.models.gguf._layout import recipes_of
from transformer_core.models.gguf.readers import LayerNumbers

_CLASSIFIER: Final = "ForSequenceClassification"


class GgufModel(GgufCheckpoint):
    """GGUF file, or the parts of one, with the description of its model.

    Weights become those of the Hugging Face checkpoint that the file was made from: names, fused and permuted rows and
    norms are undone as they are read. ``weights_of`` and related functions take it as any other source.

    Raises:
        CheckpointError: the file is absent, unreadable, or not a consistent GGUF file.
        ConfigError: the architecture is not supported, or the metadata are incomplete.
    """

    layer_key: Final = "*blk.{}"
    ignorable: Final = IGNORABLE

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._architecture: Final = known_architecture(self)
        self.config_values: Final[dict[str, Any]] = config_values_of(self, self._architecture)
        self._add_numbers()
        self.description_files: Final[dict[str, Any]] = description_of(self, self._architecture)
        self.permuted: Final = self._architecture.permuted

    def _add_numbers(self) -> None:
        """Adds tensors that the metadata hold."""
        if self._architecture.numbers:
            numbers: Any = LayerNumbers(self, self._architecture.numbers, self.config_values["num_hidden_layers"])
            self._owner.update(dict.fromkeys(numbers.keys(), numbers))

    @checked_choices
    def config(self, mode: RopeMode | None = None) -> DecoderConfig:
        """Returns the decoder's configuration.

        Args:
            mode: layout of RoPE's pairs; that of the Hugging Face model if None. With INTERLEAVED, rows of queries
                and keys stay as they are stored, which must be for that layout.

        Raises:
            ConfigError: a value contradicts another, or the file's rows are not stored for this layout.
        """
        config = DecoderConfig.from_hf(self.config_values, f"{self.path}: as {CONFIG_FILE}")
        if mode is None or mode is config.rope.mode:
            return config
        if not self.permuted:
            raise ConfigError(
                f"{self.path}: rows of queries and keys are stored for {config.rope.mode.value} RoPE only"
            )
        return dataclasses.replace(config, rope=dataclasses.replace(config.rope, mode=mode))

    def facts(self) -> dict[str, Any]:
        """Returns the manifest's entry of the file: its format, and the layout of the stored rows."""
        known = {"format": "gguf", "architecture": self._architecture.name}
        if self._architecture.encodes or self.config_values["architectures"][0].endswith(_CLASSIFIER):
            return known
        layout = RopeMode.INTERLEAVED if self.permuted else self.config().rope.mode
        return {**known, "rope_layout": layout.value}

    def write_description(self, directory: str | os.PathLike[str]) -> None:
        """Writes config.json and the other files that describe the model.

        They are generation_config.json, if the file recommends sampling, and for embeddings of sentences the files of
        sentence-transformers.
        """
        for name, values in {CONFIG_FILE: self.config_values, **self.description_files}.items():
            path = Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

    def recipe_of(self, config: Any) -> RecipeOf:
        """Returns the recipes of a configuration's parameters in this file."""
        return recipes_of(config, self._architecture)
