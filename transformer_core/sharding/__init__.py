"""Sharding: which axis of a mesh of devices cuts which dimension of a model's parameters and caches.

A rule is registered for a class of layers (``cuts_of``); docs/sharding.md has the rules and how to add one.

>>> from lang_core import MeshShape
>>> from transformer_core import SwiGLU
>>> from transformer_core.sharding import parameter_axes
>>> axes = parameter_axes(SwiGLU(8, 12), MeshShape.parse("tp=4"))
>>> axes["gate_proj.weight"], axes["down_proj.weight"]
(('tp', None), (None, 'tp'))
"""

from transformer_core.sharding import _rules as _rules
from transformer_core.sharding._cut import Cut, Rule, cuts_in, cuts_of
from transformer_core.sharding._forms import columns, rows, vocabulary
from transformer_core.sharding._layouts import argument_axes, cache_axes, result_axes
from transformer_core.sharding._plan import Sharding, divide_experts, fsdp_axes, parameter_axes, sharding
