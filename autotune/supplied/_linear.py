"""The linear layer, for weights in several layouts."""

import itertools
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from autotune import Invocation, Kernel
from lang_core import ENCODINGS, ExecutionContext, OpError, Tensor, TensorSpec, checked_choices, f32, near_names

# Layouts of a weight: [out, in] as in checkpoints; [in, out]; [out / tile, in, tile]; or, by the encoding's name,
# i8 [out, in / block * bytes of a block], GGUF's blocks (lang_core/_packing.py).
LAYOUTS: Final = ("output_major", "input_major", "tiles", *ENCODINGS)
"""Layouts of a linear kernel's weight: dense ones, and the encodings of packed weights."""

Form = Literal["direct", "flat", "weight_first", "unpacked"]


@checked_choices
@dataclass(frozen=True)
class LinearConfig:
    """Configuration of a linear layer.

    Attributes:
        form: ``direct`` (x keeps its axes), ``flat`` (they become rows of one matrix), or ``weight_first`` (the weight
            is the left factor, and the result is transposed). For packed weights: ``direct`` and ``flat``
            (``ctx.ops.packed_linear``), or ``unpacked`` (the weight is converted to f32 first).
        blocks: number of blocks of outputs, computed one after the other.
    """

    form: Form = "direct"
    blocks: int = 1


def pack_weight(weight: np.ndarray[Any, Any], layout: str, tile: int = 16) -> np.ndarray[Any, Any]:
    """Returns a weight [out, in] in another layout.

    Raises:
        OpError: the layout is unknown, or the number of outputs is not a multiple of the tile.
        ConfigError: the number of inputs is not a multiple of the block, or the encoding cannot be written.
    """
    _check(layout)
    if layout in ENCODINGS:
        ENCODINGS[layout].packed(TensorSpec(weight.shape, f32))  # raises if the weight cannot be packed
        return ENCODINGS[layout].pack(weight)
    if layout == "output_major":
        return weight
    if layout == "input_major":
        return np.ascontiguousarray(weight.T)
    outputs, inputs = weight.shape
    if outputs % tile:
        raise OpError(f"the weight {list(weight.shape)} has {outputs} outputs, not a multiple of the tile of {tile}")
    return np.ascontiguousarray(weight.reshape(outputs // tile, tile, inputs).transpose(0, 2, 1))


class LinearKernel(Kernel[LinearConfig, Tensor]):
    """``x [.., in] @ weight.T + bias [out]``.

    Arguments of a call: x, weight in the form of ``pack_weight``, bias or None, and ``layout``. A packed weight is
    multiplied as ``ctx.ops.packed_linear`` does with exact activations.
    """

    op_id = "linear"

    def run(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        *,
        cfg: LinearConfig,
        ctx: ExecutionContext,
        layout: str = "output_major",
    ) -> Tensor:
        """Returns [.., out] in x's dtype.

        Raises:
            OpError: the layout is unknown.
        """
        ops, axis = ctx.ops, _output_axis(layout)
        lead = tuple(x.shape[:-1])
        flat = x if cfg.form == "direct" else ops.reshape(x, (int(np.prod(lead)), x.shape[-1]))
        count = weight.shape[axis]
        edges = [count * i // cfg.blocks for i in range(cfg.blocks + 1)]
        parts = []
        for start, stop in itertools.pairwise(edges):
            part = weight if cfg.blocks == 1 else ops.slice_axis(weight, axis, start, stop)
            if layout in ENCODINGS:
                parts.append(_packed_product(ctx, flat, part, layout, cfg.form == "unpacked"))
            else:
                parts.append(_product(ctx, flat, part, layout, cfg.form == "weight_first"))
        product = parts[0] if len(parts) == 1 else ops.concat(parts, parts[0].ndim - 1)
        product = product if cfg.form == "direct" else ops.reshape(product, (*lead, product.shape[-1]))
        return product if bias is None else ops.add(product, bias)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> LinearConfig:
        """Returns one product without reshapes."""
        return LinearConfig()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[LinearConfig]:
        """Returns every form, whole and in blocks.

        Raises:
            OpError: the layout is unknown.
        """
        layout = inv.kwargs.get("layout", "output_major")
        count = inv.args[1].shape[_output_axis(layout)]
        forms: tuple[Form, ...] = ("direct", "flat", "unpacked" if layout in ENCODINGS else "weight_first")
        return [
            LinearConfig(form, blocks) for form in forms for blocks in (1, 2, 4) if blocks == 1 or count >= 16 * blocks
        ]


def _check(layout: str) -> None:
    if layout not in LAYOUTS:
        raise OpError(f"unknown layout {layout!r}; available: {', '.join(LAYOUTS)}{near_names(layout, LAYOUTS)}")


def _output_axis(layout: str) -> int:
    _check(layout)
    return 1 if layout == "input_major" else 0


def _product(ctx: ExecutionContext, x: Any, weight: Any, layout: str, weight_first: bool) -> Tensor:
    """Multiplies [.., in] with a weight; returns [.., out]."""
    ops, last = ctx.ops, len(x.shape) - 1
    inputs = 1 if layout == "output_major" else len(weight.shape) - 2
    if weight_first:  # [M, in]: [out, M], or [tiles, tile, M]
        swapped = ops.dot_general(weight, x, ((inputs,), (last,)))
        flat = ops.reshape(swapped, (int(np.prod(swapped.shape[:-1])), swapped.shape[-1]))
        return ops.transpose(flat, (1, 0))
    product = ops.dot_general(x, weight, ((last,), (inputs,)))
    return ops.reshape(product, (*product.shape[:last], int(np.prod(product.shape[last:]))))


def _packed_product(ctx: ExecutionContext, x: Any, weight: Any, layout: str, unpacked: bool) -> Tensor:
    """Multiplies with a packed weight."""
    ops, encoding = ctx.ops, ENCODINGS[layout]
    if not unpacked:
        return ops.packed_linear(x, weight, encoding)
    last = len(x.shape) - 1
    product = ops.dot_general(ops.cast(x, f32), ops.dequantize(weight, encoding), ((last,), (1,)))
    return ops.cast(product, x.dtype)
