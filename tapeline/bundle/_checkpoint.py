"""Weights of a bundle that was exported without, from the checkpoint itself: each device reads its parts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import CheckpointError, InputError, Part, TensorSpec, file_json, near_names, part_of
from transformer_core import CONFIG_FILE, checkpoints, models

LINK: Final = "checkpoint"
"""Name of a directory, or a link to one, in a bundle: the checkpoint of its model."""


class CheckpointWeights:
    """Safetensors of a Hugging Face directory under the names and in the dtypes of a bundle's parameters.

    Args:
        directory: of the checkpoint.
        bundle: directory of the bundle; its configuration must equal the checkpoint's.
        parameters: dtype and shape of the bundle's weights.
        model: facts of the bundle's model.

    Raises:
        InputError: the checkpoint is damaged or another model's, or the bundle's weights are packed.
    """

    def __init__(
        self, directory: Path, bundle: Path, parameters: Mapping[str, Mapping[str, Any]], model: Mapping[str, Any]
    ) -> None:
        _check_same(directory, bundle)
        self._checkpoint: Final = checkpoints.SafetensorsCheckpoint(directory)
        modules = models.load_model(directory, model["dtype"], model.get("layers"))
        self._weights: Final = models.weights_of(modules, models.unquantized(directory, self._checkpoint))
        self._specs: Final = {
            path: TensorSpec(tuple(fields["shape"]), fields["dtype"]) for path, fields in parameters.items()
        }
        for path, spec in self._specs.items():
            stored = self._weights.spec(path)
            if stored.shape != spec.shape or not (stored.dtype.is_floating and spec.dtype.is_floating):
                raise InputError(
                    f"checkpoint={directory}: {path!r} is {stored!r} there, and {spec!r} in {bundle}, which packs it: "
                    f"export with weights=external"
                )

    def keys(self) -> Iterator[str]:
        """Yields the paths of the parameters."""
        return iter(self._specs)

    def has(self, key: str) -> bool:
        """Returns whether the bundle has this parameter."""
        return key in self._specs

    def spec(self, key: str) -> TensorSpec:
        """Returns the shape and dtype that the bundle takes."""
        if key not in self._specs:
            raise CheckpointError(f"no parameter {key!r} in the bundle{near_names(key, self._specs)}")
        return self._specs[key]

    def encoding(self, key: str) -> None:
        """Returns None: parameters are not packed."""
        self.spec(key)

    def read(self, key: str) -> np.ndarray:
        """Returns the whole tensor."""
        return self.read_part(key, (slice(None),) * self.spec(key).ndim)

    def read_rows(self, key: str, start: int, stop: int) -> np.ndarray:
        """Returns rows of the first axis; a rank-0 tensor is its own only row."""
        return self._converted(key, self._weights.read_rows(key, start, stop))

    def read_part(self, key: str, part: Part) -> np.ndarray:
        """Returns a part; only its bytes are touched if the files store it as the model does."""
        return self._converted(key, part_of(self._weights, key, part))

    def origin(self, key: str) -> str:
        """Returns the path of the tensor's file."""
        return self._weights.origin(key)

    def close(self) -> None:
        """Closes the files."""
        self._checkpoint.close()

    def _converted(self, key: str, part: np.ndarray) -> np.ndarray:
        dtype = self.spec(key).dtype
        if part.dtype == dtype.numpy:
            return part
        with np.errstate(over="ignore"):
            converted = part.astype(dtype.numpy)
        if np.isinf(converted).sum() != np.isinf(part).sum():
            raise InputError(
                f"parameter {key!r} in {self.origin(key)} has values beyond {dtype.name}: export the bundle in bf16"
            )
        return converted


def checkpoint_of(bundle: Path) -> Path | None:
    """Returns the checkpoint that a bundle finds by itself: ``checkpoint`` in it, or the directory that it lies in."""
    if (bundle / LINK).is_dir():
        return bundle / LINK
    above = bundle.absolute().parent
    return above if (above / CONFIG_FILE).is_file() and any(above.glob("*.safetensors")) else None


def _check_same(directory: Path, bundle: Path) -> None:
    contents: list[Any] = []
    for path in (directory / CONFIG_FILE, bundle / CONFIG_FILE):
        try:
            contents.append(file_json(path, nonfinite=True))
        except (OSError, ValueError) as error:
            raise InputError(
                f"checkpoint={directory}: {path} cannot be read ({error}): give the model's directory"
            ) from None
    if contents[0] != contents[1]:
        raise InputError(
            f"checkpoint={directory}: its {CONFIG_FILE} is not that of {bundle}: give the checkpoint that was exported"
        )
