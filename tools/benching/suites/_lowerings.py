"""Jobs and rows of lowerings, which two suites share."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.benching.suites._figures import Case
from tools.benching.suites._plan import MIB, Plan
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

LOWER_JOB: Final = "tools.benching.jobs.lower"
CHAIN_JOB: Final = "tools.benching.jobs.lower_chain"
JAX_JOB: Final = "tools.benching.jobs.jax_export"


def ours(
    runner: Runner,
    config: Mapping[str, Any],
    plan: Plan,
    *,
    streaming: bool,
    form: str = "external",
    block_functions: bool = True,
    entry_points: Sequence[str] = ("forward",),
    max_sequence: int | None = None,
) -> Result:
    """Lowers with this repository."""
    return runner.job_with_memory(
        LOWER_JOB,
        config=config,
        entry_points=entry_points,
        sequence=plan.sequence,
        max_sequence=max_sequence,
        streaming=streaming,
        form=form,
        block_functions=block_functions,
        text=str(runner.workdir / "lowered.mlir"),
    )


def chain(runner: Runner, nodes: int, blocks: str, *, streaming: bool = True) -> Result:
    """Lowers a chain of ops with this repository."""
    return runner.job_with_memory(
        CHAIN_JOB, nodes=nodes, blocks=blocks, streaming=streaming, text=str(runner.workdir / "lowered.mlir")
    )


def jax_export(runner: Runner, config: Mapping[str, Any], plan: Plan) -> Result:
    """Lowers the same forward with ``jax.export``."""
    return runner.job_with_memory(JAX_JOB, config=config, sequence=plan.sequence, trace=False)


def row(name: str, results: Sequence[Result], peer: bool = False) -> Case:
    """The figures of a lowering."""
    values = {
        "seconds": Summary.of_key(results, "seconds"),
        "processor seconds": Summary.of_key(results, "cpu_seconds"),
        "seconds, second time": Summary.of_key(results, "seconds_again"),
        "RSS +MiB": Summary.of_key(results, "rss_bytes", MIB),
        "anonymous +MiB": Summary.of_key(results, "anonymous_bytes", MIB),
    }
    if not peer:
        values["of it the model +MiB"] = Summary.of_key(results, "model_bytes", MIB)
    return Case(name, values | {"text MB": Summary.of_key(results, "text_bytes", 1e6)}, peer)


def growth(more: Sequence[Result], less: Sequence[Result], key: str) -> Summary:
    """Returns by how many MiB the peak of one is higher than that of the other, round by round."""
    return Summary.of_pairs(more, less, lambda one, other: (one[key] - other[key]) / MIB)


def same_text(one: Sequence[Result], other: Sequence[Result]) -> bool:
    """True if all texts are the same, byte for byte."""
    return len({result["sha256"] for result in (*one, *other)}) == 1
