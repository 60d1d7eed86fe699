"""Kernels of transformers: each computes one thing in several ways, all within the tolerance of each other.

>>> import numpy as np
>>> from autotune import ConfigSelectorChain, Executor
>>> from autotune.supplied import AttentionKernel
>>> q, k = np.zeros((1, 4, 3, 8), np.float32), np.zeros((1, 2, 5, 8), np.float32)
>>> Executor(ConfigSelectorChain(policy="heuristics"))(AttentionKernel(), q, k, k, causal=True).shape
(1, 4, 3, 8)
"""

from autotune.supplied._attention import AttentionConfig, AttentionKernel, GroupedAttentionKernel
from autotune.supplied._composites import composite_kernels
from autotune.supplied._gated_delta import GatedDeltaConfig, GatedDeltaKernel
from autotune.supplied._linear import LAYOUTS, LinearConfig, LinearKernel, pack_weight
from autotune.supplied._norms import RMSNormConfig, RMSNormKernel, SoftmaxConfig, SoftmaxKernel
from autotune.supplied._rope import RopeKernel, RopeKernelConfig
