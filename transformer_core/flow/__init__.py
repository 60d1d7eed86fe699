"""Flows: models composed from stages, without touching a graph. The guide is docs/flow.md.

>>> from lang_core import EagerExecutionContext
>>> from transformer_core import RMSNorm, SwiGLU
>>> from transformer_core.flow import CompileProfile, ModelFlow
>>> layer = (
...     ModelFlow("layer")
...     .store_residual()
...     .stage("norm", lambda build: RMSNorm(build.size, dtype=build.dtype))
...     .stage("mlp", lambda build: SwiGLU(build.size, 12, dtype=build.dtype))
...     .add_residual()
... )
>>> recipe = (
...     ModelFlow("lm")
...     .input("token_ids", ("B", "T"), "i32")
...     .token_embed(11, 8, name="model.embed_tokens")
...     .repeat_layers(2, layer, name="model.layers")
...     .final_norm(name="model.norm")
...     .lm_head(tied=True)
... )
>>> model = recipe.build(CompileProfile.preset("training", sequence=5))
>>> [path for path, _ in model.named_parameters()][:3]
['model.embed_tokens.weight', 'model.layers.0.norm.weight', 'model.layers.0.mlp.gate_proj.weight']
>>> model.trace().results
{'logits': f32[1,5,11]}
"""

from transformer_core.flow._adapters import AdaptedLinear, adapted_linears
from transformer_core.flow._build import BuildContext, Maker
from transformer_core.flow._context import Block, FlowContext
from transformer_core.flow._entry_points import entry_points
from transformer_core.flow._model import FlowModel
from transformer_core.flow._profile import CompileProfile, Memory, Positions, Rows
from transformer_core.flow._profile_file import load_profiles
from transformer_core.flow._recipe import ModelFlow, sequence, when
from transformer_core.flow._value import FlowValue
