"""Chooses the weights of a model that are packed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lang_core import (
    BLOCK,
    ENCODINGS,
    Activations,
    ConfigError,
    DType,
    Encoding,
    Module,
    Parameter,
    any_of,
    checked_choices,
    f64,
    quantizable,
)
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._linear import Linear
from transformer_core.layers._moe import Experts

STORED: Final = "stored"
"""Option in place of an encoding: each matrix keeps the encoding that the checkpoint has."""


@checked_choices
def pack_weights(model: Module, encoding: Encoding, dtype: DType, activations: Activations = "exact") -> None:
    """Packs every matrix of the model with whole blocks: those of ``Linear``, ``Embedding`` and ``Experts``.

    Norms, biases, positions, routers and convolutions stay unpacked.

    Args:
        model: model; its modules are changed, including those that are made later.
        encoding: encoding of the blocks.
        dtype: dtype of the activations.
        activations: form in which products take x: as it is, or rounded to 8 bits in blocks of 32.

    Raises:
        ConfigError: packed weights do not support the dtype, or none of the matrices can be packed.
    """
    if not _encode(model, lambda _: encoding, encoding.name, dtype, activations):
        raise ConfigError(
            f"no weight can be packed as {encoding.name}: blocks of {BLOCK} go along the inputs of linear layers and "
            f"embeddings, and no number of them is a multiple of {BLOCK}: take the model unpacked"
        )


@checked_choices
def keep_packed(
    model: Module,
    encodings: Mapping[str, Encoding],
    dtype: DType,
    activations: Activations = "exact",
    *,
    required: bool = True,
) -> bool:
    """Packs the matrices that a checkpoint has packed, each by the same encoding; others stay unpacked.

    Args:
        model: as for ``pack_weights``, which lists the matrices that can be packed.
        encodings: encodings of the checkpoint's parameters, by the model's paths.
        dtype: dtype of the activations.
        activations: form in which products take x: as it is, or rounded to 8 bits in blocks of 32.
        required: True refuses a model of which nothing stays packed.

    Returns:
        Whether any matrix stays packed.

    Raises:
        ConfigError: packed weights do not support the dtype, or none of the matrices stays packed and one is required.
    """
    packed = _encode(model, encodings.get, "as stored", dtype, activations)
    if required and not packed:
        raise ConfigError(
            f"no matrix of the checkpoint is packed as {any_of(ENCODINGS)}, so none "
            f"can stay so: have it quantised as {any_of(quantizable())}, or take the model unpacked"
        )
    return packed


def _matrices(module: Module) -> Sequence[Parameter]:
    """Returns the module's own weights that may be packed."""
    if isinstance(module, Experts):
        projections = module.gate_proj, module.up_proj, module.down_proj
        return [weight for weight in projections if weight is not None]
    return [module.weight] if isinstance(module, Linear | Embedding) and module.packable else []


def _set_encodings(module: Module, wanted: Callable[[str], Encoding | None], activations: Activations) -> None:
    """Sets the encodings of a module's matrices, if they can be packed."""
    for weight in _matrices(module):
        encoding = wanted(weight.path)
        if encoding is not None and encoding.takes(weight.spec.shape):
            weight.encoding, weight.activations = encoding, activations


def _encode(
    model: Module, wanted: Callable[[str], Encoding | None], name: str, dtype: DType, activations: Activations
) -> bool:
    """Sets the encodings of matrices, by path; returns whether there is any."""
    if dtype is f64:
        raise ConfigError(f"packed weights ({name}) go with f32, bf16 or f16; the model is f64")

    model.visit(lambda module: _set_encodings(module, wanted, activations))
    return any(parameter.encoding is not None for _, parameter in model.named_parameters())
