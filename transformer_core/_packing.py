"""Which weights of a model are packed."""

from lang_core import BLOCK, ConfigError, DType, Encoding, Module, f64
from transformer_core._embedding import Embedding
from transformer_core._linear import Linear


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
    if dtype is f64:
        raise ConfigError(f"packed weights ({encoding.name}) go with f32, bf16 or f16; the model is f64")

    def change(module: Module) -> None:
        if isinstance(module, Linear | Embedding) and module.packable and encoding.takes(module.weight.spec.shape):
            module.weight.encoding = encoding

    model.visit(change)
    if all(parameter.encoding is None for _, parameter in model.named_parameters()):
        raise ConfigError(
            f"no weight can be packed as {encoding.name}: blocks of {BLOCK} go along the inputs of linear layers and "
            f"embeddings, and no number of them is a multiple of {BLOCK}: take the model unpacked"
        )
