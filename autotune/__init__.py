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

from autotune import _gradient_rule
from autotune._cache import ConfigCache, overlay_cache
from autotune._codec import decode as from_json
from autotune._codec import encode as to_json
from autotune._compiler import (
    CompiledKernel,
    CompileRequest,
    KernelCompiler,
    compiler_named,
    register_compiler,
)
from autotune._entry import (
    HEURISTIC,
    OVERRIDE,
    PINNED,
    TUNED,
    AutotuneData,
    CacheEntry,
    Key,
    Measurement,
    Selection,
    cfg_name,
)
from autotune._environment import (
    Environment,
    compile_environment,
    cpu_model,
    device_fingerprint,
    environment_of,
    flags_of,
    get_device_platform,
    host_environment,
)
from autotune._errors import CacheWarning, ConfigSelectionError, KernelError, TuningError
from autotune._executor import Executor
from autotune._gradient import COMPOSITE, KernelCall
from autotune._hosted import with_jax_arrays
from autotune._invocation import Cfg, Invocation, Out
from autotune._kernel import KERNEL_CLASSES, Kernel
from autotune._labels import extract_labels_from_hlo_text, find_labels_in_lowered, label
from autotune._offline import (
    AutotuningResult,
    Entry,
    autotune_lowered,
    autotune_recorded,
    default_chooser,
    labels_to_configs,
)
from autotune._persistent import PersistentCache, cache_directory
from autotune._policy import POLICIES, AutotunePolicy, policy_override
from autotune._profile import ProfiledCall, profile
from autotune._registry import (
    RecordedCall,
    as_line,
    call_of,
    forget_invocations,
    get_invocations,
    is_recording_calls,
    read_record,
    record_file,
    record_invocation,
    record_lines,
    recorded_calls,
)
from autotune._selection import ConfigChooser, ConfigSelectorChain
from autotune._specs import (
    ArraySpec,
    abstractify,
    arrays_of,
    map_arrays,
    powers_of_two,
    short_hash,
    stable_json,
)
from autotune._tuner import Tuner
from autotune._using import CompositeKernel, remembering_executor, using_kernels, with_kernels

del _gradient_rule  # it is registered

__all__ = [
    "COMPOSITE",
    "HEURISTIC",
    "KERNEL_CLASSES",
    "OVERRIDE",
    "PINNED",
    "POLICIES",
    "TUNED",
    "ArraySpec",
    "AutotuneData",
    "AutotunePolicy",
    "AutotuningResult",
    "CacheEntry",
    "CacheWarning",
    "Cfg",
    "CompileRequest",
    "CompiledKernel",
    "CompositeKernel",
    "ConfigCache",
    "ConfigChooser",
    "ConfigSelectionError",
    "ConfigSelectorChain",
    "Entry",
    "Environment",
    "Executor",
    "Invocation",
    "Kernel",
    "KernelCall",
    "KernelCompiler",
    "KernelError",
    "Key",
    "Measurement",
    "Out",
    "PersistentCache",
    "ProfiledCall",
    "RecordedCall",
    "Selection",
    "Tuner",
    "TuningError",
    "abstractify",
    "arrays_of",
    "as_line",
    "autotune_lowered",
    "autotune_recorded",
    "cache_directory",
    "call_of",
    "cfg_name",
    "compile_environment",
    "compiler_named",
    "cpu_model",
    "default_chooser",
    "device_fingerprint",
    "environment_of",
    "extract_labels_from_hlo_text",
    "find_labels_in_lowered",
    "flags_of",
    "forget_invocations",
    "from_json",
    "get_device_platform",
    "get_invocations",
    "host_environment",
    "is_recording_calls",
    "label",
    "labels_to_configs",
    "map_arrays",
    "overlay_cache",
    "policy_override",
    "powers_of_two",
    "profile",
    "read_record",
    "record_file",
    "record_invocation",
    "record_lines",
    "recorded_calls",
    "register_compiler",
    "remembering_executor",
    "short_hash",
    "stable_json",
    "to_json",
    "using_kernels",
    "with_jax_arrays",
    "with_kernels",
]
