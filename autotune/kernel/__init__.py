"""The contract of a kernel: its class, its calls, and the inputs of a call's configuration choice."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from autotune.kernel._by_ops import pullback_by_ops, recorded_specs
    from autotune.kernel._call import COMPOSITE, KernelCall, bound_method, run_in_jax, traced, value_and_pullback
    from autotune.kernel._contract import (
        candidates_of,
        checked_arguments,
        checked_cfg,
        checked_kernel,
        checked_tolerance,
        heuristic_of,
        needs_methods,
        prepared,
    )
    from autotune.kernel._environment import (
        Environment,
        compile_environment,
        cpu_model,
        device_fingerprint,
        environment_of,
        flags_of,
        get_device_platform,
        host_environment,
    )
    from autotune.kernel._errors import (
        CacheWarning,
        CallbackWarning,
        ConfigSelectionError,
        GradientWarning,
        KernelError,
        MissingMethodError,
        TuningError,
    )
    from autotune.kernel._invocation import Cfg, Invocation, Out
    from autotune.kernel._jax_arrays import (
        HOST_KINDS,
        as_jax,
        as_numpy,
        data_of,
        is_jax,
        is_tracer,
        is_tracing,
        jax_module,
        jitted,
        named_scope,
        result_shapes,
        wait,
        without_gradient,
    )
    from autotune.kernel._kernel import KERNEL_CLASSES, Kernel, has_gradient, run_takes_context, takes_context, variant
    from autotune.kernel._specs import (
        ArraySpec,
        abstractify,
        aligned,
        arrays_of,
        is_array,
        map_arrays,
        powers_of_two,
        spec_of,
    )
    from autotune.kernel._trials import Observer, is_trial, trial
    from autotune.kernel._values import (
        Same,
        describe,
        exact_key,
        functions_of,
        ordered_key,
        short_hash,
        stable_json,
        statics_of,
    )

export_lazily(__name__)
