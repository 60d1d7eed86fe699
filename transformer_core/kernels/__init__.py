"""Kernels of transformers: each computes one thing in several ways, all within the tolerance of each other.

>>> import numpy as np
>>> from lang_core.kernels import ConfigSelectorChain, Executor
>>> from transformer_core.kernels import AttentionKernel
>>> q, k = np.zeros((1, 4, 3, 8), np.float32), np.zeros((1, 2, 5, 8), np.float32)
>>> Executor(ConfigSelectorChain(policy="heuristics"))(AttentionKernel(), q, k, k, causal=True).shape
(1, 4, 3, 8)
"""

from transformer_core.kernels._attention import AttentionConfig, AttentionKernel, GroupedAttentionKernel
from transformer_core.kernels._composites import composite_kernels
from transformer_core.kernels._gated_delta import GatedDeltaConfig, GatedDeltaKernel
from transformer_core.kernels._linear import LAYOUTS, LinearConfig, LinearKernel, pack_weight
from transformer_core.kernels._norms import RMSNormConfig, RMSNormKernel, SoftmaxConfig, SoftmaxKernel
from transformer_core.kernels._rope import RopeKernel, RopeKernelConfig

__all__ = [
    "LAYOUTS",
    "AttentionConfig",
    "AttentionKernel",
    "GatedDeltaConfig",
    "GatedDeltaKernel",
    "GroupedAttentionKernel",
    "LinearConfig",
    "LinearKernel",
    "RMSNormConfig",
    "RMSNormKernel",
    "RopeKernel",
    "RopeKernelConfig",
    "SoftmaxConfig",
    "SoftmaxKernel",
    "composite_kernels",
    "pack_weight",
]
