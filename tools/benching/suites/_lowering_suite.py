"""Suite ``lowering``: a Llama forward with abstract weights, beside ``jax.export``."""

from tools.benching.suites._figures import Goal, SuiteResult, Table
from tools.benching.suites._lowerings import jax_export, ours, row, same_text
from tools.benching.suites._plan import MIB, Plan, config_of
from tools.benching.suites._run import Runner
from tools.benching.suites._stats import Summary


def lowering(runner: Runner, plan: Plan) -> SuiteResult:
    """The peer, and ours: streaming, buffered, without block functions, with parameters as arguments (as the peer)."""
    config = config_of(plan.model)
    rounds = runner.interleaved(
        {
            "streaming": lambda: ours(runner, config, plan, streaming=True),
            "buffered": lambda: ours(runner, config, plan, streaming=False),
            "streaming, flat": lambda: ours(runner, config, plan, streaming=True, block_functions=False),
            "buffered, parameters as arguments": lambda: ours(runner, config, plan, streaming=False, form="arguments"),
            "jax.export": lambda: jax_export(runner, config, plan),
        }
    )
    peer = rounds["jax.export"]
    result = SuiteResult("lowering")
    title = f"Forward of {plan.model.layers} layers, T = {plan.sequence}, weights abstract, to text"
    result.tables = [Table(title, [row(name, results, name == "jax.export") for name, results in rounds.items()])]
    for name in ("streaming", "buffered"):
        results = rounds[name]
        result.goals += [
            Goal(f"{name}: seconds", "<=", 0.06, Summary.of_key(results, "seconds")),
            Goal(f"{name}: RSS over imports, MiB", "<=", 6, Summary.of_key(results, "rss_bytes", MIB)),
            Goal(
                f"{name}: times faster than jax.export",
                ">=",
                8,
                Summary.of_pairs(peer, results, lambda theirs, mine: theirs["seconds"] / mine["seconds"]),
            ),
        ]
    times = Summary.of_pairs(
        rounds["streaming"], rounds["buffered"], lambda one, other: one["cpu_seconds"] / other["cpu_seconds"]
    )
    result.goals.append(Goal("streaming: processor time against buffered", "<=", 1.15, times))
    result.facts["streamed text is the buffered text"] = same_text(rounds["streaming"], rounds["buffered"])
    return result
