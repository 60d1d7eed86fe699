"""Kernels: implementations with a configuration, which is chosen, tuned, remembered and explained.

>>> import numpy as np
>>> from autotune import ConfigSelectorChain, Executor, Kernel
>>> class Twice(Kernel[int, np.ndarray]):
...     op_id = "twice"
...     def run(self, x, *, cfg):
...         return np.concatenate([part * 2 for part in np.array_split(x, cfg)])
...     def heuristic_cfg(self, inv):
...         return 1
>>> executor = Executor(ConfigSelectorChain(policy="heuristics"))
>>> executor(Twice(), np.arange(3)).tolist()
[0, 2, 4]
>>> executor.explain(Twice(), np.arange(3)).tier
'memory'
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune._executor import Executor
    from autotune._offline import (
        AutotuningResult,
        Entry,
        autotune_lowered,
        autotune_recorded,
        default_chooser,
        labels_to_configs,
    )
    from autotune._using import CompositeKernel, remembering_executor, using_kernels, with_kernels
    from autotune.caches import (
        HEURISTIC,
        OVERRIDE,
        PINNED,
        TUNED,
        AutotuneData,
        CacheEntry,
        ConfigCache,
        Key,
        Measurement,
        PersistentCache,
        Selection,
        cache_directory,
        cfg_name,
        overlay_cache,
    )
    from autotune.caches import decode as from_json
    from autotune.caches import encode as to_json
    from autotune.compilers import (
        CompiledKernel,
        CompileRequest,
        KernelCompiler,
        compiler_named,
        register_compiler,
        with_jax_arrays,
    )
    from autotune.kernel import (
        COMPOSITE,
        KERNEL_CLASSES,
        ArraySpec,
        CacheWarning,
        CallbackWarning,
        Cfg,
        ConfigSelectionError,
        Environment,
        GradientWarning,
        Invocation,
        Kernel,
        KernelCall,
        KernelError,
        MissingMethodError,
        Out,
        TuningError,
        abstractify,
        arrays_of,
        compile_environment,
        cpu_model,
        device_fingerprint,
        environment_of,
        flags_of,
        get_device_platform,
        host_environment,
        map_arrays,
        powers_of_two,
        short_hash,
        stable_json,
    )
    from autotune.records import (
        ProfiledCall,
        RecordedCall,
        as_line,
        call_of,
        extract_labels_from_hlo_text,
        find_labels_in_lowered,
        forget_invocations,
        get_invocations,
        is_recording_calls,
        label,
        profile,
        read_record,
        record_file,
        record_invocation,
        record_lines,
        recorded_calls,
    )
    from autotune.selection import POLICIES, AutotunePolicy, ConfigChooser, ConfigSelectorChain, policy_override
    from autotune.tuning import Tuner

export_lazily(__name__)
