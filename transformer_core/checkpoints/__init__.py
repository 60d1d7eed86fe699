"""Checkpoints: safetensors files read as mapped views, audited and written in a stream; recipes for other layouts.

>>> import numpy as np, os, tempfile
>>> from lang_core import TensorSpec
>>> from transformer_core.checkpoints import SafetensorsCheckpoint, write_safetensors
>>> with tempfile.TemporaryDirectory() as directory:
...     path = os.path.join(directory, "model.safetensors")
...     ones = lambda key, spec: [np.ones(spec.shape, np.float32)]
...     size = write_safetensors(path, {"w": TensorSpec((2, 3), "f32")}, ones)
...     with SafetensorsCheckpoint(directory) as checkpoint:
...         checkpoint.spec("w"), float(checkpoint.read("w").sum())
(f32[2,3], 6.0)
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from transformer_core.checkpoints._adapted import AdaptedWeights, adapt, adapts
    from transformer_core.checkpoints._adapter import Adapter
    from transformer_core.checkpoints._adapter_parts import AdapterPlace, Factors
    from transformer_core.checkpoints._aliased import AliasedWeights, PrefixedWeights
    from transformer_core.checkpoints._audit import IGNORABLE, Audit, audit
    from transformer_core.checkpoints._checkpoint import (
        INDEX_FILE,
        SINGLE_FILE,
        SafetensorsCheckpoint,
        read_shard_names,
    )
    from transformer_core.checkpoints._composed import ComposedWeights, RecipeOf
    from transformer_core.checkpoints._expert_recipes import EveryOther, InputMajor
    from transformer_core.checkpoints._factors import adapter_factors
    from transformer_core.checkpoints._file import SafetensorsFile
    from transformer_core.checkpoints._keys import (
        ExpertKeys,
        FusedKeys,
        GroupedParts,
        InputMajorKeys,
        RenamedKeys,
        RenamedModules,
        RenamedParts,
        first_of,
        fused_experts,
    )
    from transformer_core.checkpoints._packed import DequantizedWeights, PackedWeights
    from transformer_core.checkpoints._random import write_random_checkpoint
    from transformer_core.checkpoints._random_llama import (
        LLAMA_PRESETS,
        LlamaSizes,
        llama_config,
        llama_specs,
        write_random_llama,
    )
    from transformer_core.checkpoints._recipes import (
        Computed,
        Cut,
        Interleaved,
        NormedRows,
        Paired,
        Recipe,
        Reshaped,
        Stacked,
        StackedInputMajor,
        Stored,
        Transposed,
        WeightNormed,
    )
    from transformer_core.checkpoints._wrapped_keys import WrappedKeys
    from transformer_core.checkpoints._writer import (
        write_safetensors,
        write_sharded_safetensors,
        write_sparse_safetensors,
    )

export_lazily(__name__)
