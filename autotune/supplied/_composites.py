"""The table of kernels by the composite of a model that they compute."""

from typing import Any

from autotune import CompositeKernel
from autotune.supplied._attention import AttentionKernel, GroupedAttentionKernel
from autotune.supplied._gated_delta import GatedDeltaKernel
from autotune.supplied._linear import LinearKernel
from autotune.supplied._norms import RMSNormKernel, SoftmaxKernel
from autotune.supplied._rope import RopeKernel
from lang_core import Activations, DType, Encoding, as_dtype

Call = tuple[tuple[Any, ...], dict[str, Any]]


def composite_kernels() -> dict[str, CompositeKernel]:
    """Returns this package's kernels by the composite that each computes, for ``using_kernels``.

    A call that a kernel does not support is left to the composite: softmax with a mask or over another axis than the
    last, attention with a bias or a cap, and a product with packed weights in another dtype than x. The rotation of
    RoPE that eager contexts compute on views is replaced as well.
    """
    return {
        "attention": CompositeKernel(AttentionKernel(), _attention),
        "gated_delta_rule": CompositeKernel(GatedDeltaKernel(), _gated_delta),
        "grouped_attention": CompositeKernel(GroupedAttentionKernel(), _grouped_attention),
        "linear": CompositeKernel(LinearKernel(), _linear),
        "packed_linear": CompositeKernel(LinearKernel(), _packed_linear),
        "rms_norm": CompositeKernel(RMSNormKernel(), _rms_norm),
        "rope": CompositeKernel(RopeKernel(), _rope),
        "softmax": CompositeKernel(SoftmaxKernel(), _softmax),
    }


def _attention(q: Any, k: Any, v: Any, mask: Any, bias: Any, scale: float | None, softcap: float | None) -> Call | None:
    return None if bias is not None or softcap is not None else ((q, k, v, mask), {"scale": scale})


def _grouped_attention(q: Any, k: Any, v: Any, bias: Any, scale: float | None) -> Call:
    return (q, k, v, bias), {"scale": scale}


def _gated_delta(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any, scale: float | None, chunk_size: int) -> Call:
    del chunk_size  # set by the configuration
    return (q, k, v, g, beta, state), {"scale": scale}


def _linear(x: Any, weight: Any, bias: Any) -> Call:
    return (x, weight, bias), {}


def _packed_linear(x: Any, weight: Any, encoding: Encoding, dtype: DType, activations: Activations) -> Call | None:
    fits = activations == "exact" and as_dtype(x.dtype) is dtype
    return ((x, weight), {"layout": encoding.name}) if fits else None


def _rms_norm(x: Any, weight: Any, eps: float) -> Call:
    return (x, weight), {"eps": eps}


def _rope(x: Any, cos: Any, sin: Any, mode: Any) -> Call:
    return (x, cos, sin), {"mode": mode}


def _softmax(x: Any, where: Any, axis: int) -> Call | None:
    return ((x,), {}) if where is None and axis in (-1, len(x.shape) - 1) else None
