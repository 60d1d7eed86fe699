"""Measured: what a compiled kernel's call costs over calling IREE's function through ``iree.runtime`` alone."""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from iree import runtime

from autotune import ConfigSelectorChain, Executor
from autotune.iree_compiler import IreeCompiler
from autotune.supplied import LinearKernel
from run_iree import Device, compile_module, target_named, target_of_device
from tools.benching.jobs._measure import serve
from tools.benching.jobs._turns import in_turns

Array = np.ndarray[Any, Any]

_MICRO: Final = 1e6


class Direct:
    """The same module, called through ``iree.runtime`` with as little as is possible."""

    def __init__(self, module: Path, device: str, arrays: tuple[Array, ...], result: tuple[int, ...]) -> None:
        self._hal: Final = Device(device).hal
        self._instance: Final = runtime.VmInstance()
        loaded = runtime.VmModule.mmap(self._instance, str(module))
        parts = [runtime.create_hal_module(self._instance, self._hal), loaded]
        self._context: Final = runtime.VmContext(self._instance, modules=parts)
        self._function: Final[Any] = loaded.lookup_function("main")
        self._result: Final = result
        self._there: Final = [self._uploaded(array) for array in arrays]

    def _uploaded(self, array: Array) -> Any:
        return self._hal.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=runtime.BufferUsage.DEFAULT,
            device=self._hal,
            buffer=array,
            element_type=runtime.HalElementType.FLOAT_32,
        )

    def __call__(self, *arrays: Array) -> Array:
        """NumPy arrays in, a NumPy array of one's own out: what a compiled kernel does."""
        inputs, outputs = runtime.VmVariantList(len(arrays)), runtime.VmVariantList(1)
        for array in arrays:
            inputs.push_ref(self._uploaded(array))
        self._context.invoke(self._function, inputs, outputs)
        mapped: Any = outputs.get_as_object(0, runtime.HalBufferView).get_buffer().map()
        return np.ndarray(self._result, np.float32, mapped).copy()

    def module_alone(self) -> None:
        """The arguments lie on the device already, and nobody looks at the result."""
        inputs, outputs = runtime.VmVariantList(len(self._there)), runtime.VmVariantList(1)
        for view in self._there:
            inputs.push_ref(view)
        self._context.invoke(self._function, inputs, outputs)


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Microseconds per call, by the clock, in turns.

    Args:
        arguments: ``device``; ``rows``, ``inputs``, ``outputs`` of a linear layer; ``repeats`` and ``sample_s`` of
            ``in_turns``.

    Returns:
        ``ours_us``, ``direct_us``, ``wrapped_us`` (by the callable that ``iree.runtime`` itself makes of a module),
        ``module_us``, medians of the turns; ``overhead``, the median of ours over direct less 1, turn by turn;
        ``same``, whether all give the same bits.
    """
    random = np.random.default_rng(0)
    x = random.standard_normal((arguments["rows"], arguments["inputs"])).astype(np.float32)
    weight = random.standard_normal((arguments["outputs"], arguments["inputs"])).astype(np.float32)
    compiler = IreeCompiler(arguments["device"])
    executor = Executor(ConfigSelectorChain(policy="heuristics"), compiler=compiler)
    ours = executor.compile(LinearKernel(), x, weight)
    with tempfile.TemporaryDirectory() as folder:
        source, module = Path(folder, "main.mlir"), Path(folder, "main.vmfb")
        source.write_text(ours.function.text)  # pyright: ignore[reportFunctionMemberAccess] - an IreeFunction
        compile_module(source, module, target_named(target_of_device(arguments["device"])))
        direct = Direct(module, arguments["device"], (x, weight), (arguments["rows"], arguments["outputs"]))
        wrapped = _wrapped(module, arguments["device"])
    calls = {
        "ours": lambda: ours(x, weight),
        "direct": lambda: direct(x, weight),
        "wrapped": lambda: wrapped(x, weight).to_host(),
        "module": direct.module_alone,
    }
    results = [np.asarray(calls[name]()).tobytes() for name in ("ours", "direct", "wrapped")]
    times = in_turns(calls, arguments["repeats"], arguments["sample_s"])
    result: dict[str, Any] = {f"{name}_us": statistics.median(samples) * _MICRO for name, samples in times.items()}
    ratios = [mine / other for mine, other in zip(times["ours"], times["direct"], strict=True)]
    return result | {"overhead": statistics.median(ratios) - 1, "same": len(set(results)) == 1}


def _wrapped(module: Path, device: str) -> Callable[..., Any]:
    config = runtime.Config(device=Device(device).hal)
    context = runtime.SystemContext(config=config)
    loaded = runtime.VmModule.mmap(config.vm_instance, str(module))
    context.add_vm_module(loaded)
    return context.modules[loaded.name]["main"]


if __name__ == "__main__":
    serve(run)
