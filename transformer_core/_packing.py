"""Which weights of a model are packed."""

from collections.abc import Callable, Mapping
from typing import Final

from lang_core import BLOCK, ENCODINGS, QUANTIZED, ConfigError, DType, Encoding, Module, f64
from transformer_core._embedding import Embedding
from transformer_core._linear import Linear

# In the place of an encoding: what a checkpoint has packed stays so, each matrix as it is there.
STORED: Final = "stored"


def pack_weights(model: Module, encoding: Encoding, dtype: DType) -> None:
    """Lets every matrix of the model that can be be packed: those of ``Linear`` and ``Embedding``, with whole blocks.

    What is left as it is: norms, biases, positions, stacked experts, convolutions.

    Args:
        model: its modules are changed, those that are made later too.
        encoding: of the blocks.
        dtype: of the activations.

    Raises:
        ConfigError: activations of this dtype are not multiplied with packed weights, or no matrix can be packed.
    """
    if not _encode(model, lambda _: encoding, encoding.name, dtype):
        raise ConfigError(
            f"no weight can be packed as {encoding.name}: blocks of {BLOCK} go along the inputs of linear layers and "
            f"embeddings, and no number of them is a multiple of {BLOCK}: take the model unpacked"
        )


def keep_packed(model: Module, encodings: Mapping[str, Encoding], dtype: DType) -> None:
    """Lets those matrices be packed that a checkpoint has packed, each as it is there; others stay as they are.

    Args:
        model: as for ``pack_weights``, which says which matrices can be packed.
        encodings: of the checkpoint's parameters, by the model's paths.
        dtype: of the activations.

    Raises:
        ConfigError: activations of this dtype are not multiplied with packed weights, or no matrix stays packed.
    """
    known = f"{', '.join([*ENCODINGS][:-1])} or {[*ENCODINGS][-1]}"
    if not _encode(model, encodings.get, "as stored", dtype):
        raise ConfigError(
            f"no matrix of the checkpoint is packed as {known}, so none can stay so: have it quantised as "
            f"{' or '.join(QUANTIZED)}, or take the model unpacked"
        )


def pack_alike(model: Module, packed: Module) -> None:
    """Lets the matrices of a model be packed that another model of the same parameters has packed."""
    encodings = {path: parameter.encoding for path, parameter in packed.named_parameters()}
    if any(encodings.values()):
        model.visit(lambda module: _set_encoding(module, encodings.get))


def _set_encoding(module: Module, wanted: Callable[[str], Encoding | None]) -> None:
    """Sets the encoding of a module's matrix, where it can be packed."""
    if not isinstance(module, Linear | Embedding) or not module.packable:
        return
    encoding = wanted(module.weight.path)
    if encoding is not None and encoding.takes(module.weight.spec.shape):
        module.weight.encoding = encoding


def _encode(model: Module, wanted: Callable[[str], Encoding | None], name: str, dtype: DType) -> bool:
    """Sets the encodings of matrices, by path; returns whether there is any."""
    if dtype is f64:
        raise ConfigError(f"packed weights ({name}) go with f32, bf16 or f16; the model is f64")

    model.visit(lambda module: _set_encoding(module, wanted))
    return any(parameter.encoding is not None for _, parameter in model.named_parameters())
