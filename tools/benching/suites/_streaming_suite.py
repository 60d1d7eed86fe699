"""Suite ``streaming``: memory and time against the number of layers, and whole exports of a real checkpoint."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tools.benching.suites._dry_runs import dry_runs
from tools.benching.suites._exports import exports
from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._lowerings import chain, growth, jax_export, ours, row, same_text
from tools.benching.suites._plan import MIB, TINY, Plan, config_of, large_config
from tools.benching.suites._run import Result, Runner
from tools.benching.suites._stats import Summary

_MOST_ROUNDS = 3  # of what takes long


def streaming(runner: Runner, plan: Plan) -> SuiteResult:
    """All parts; exports only where the plan has a checkpoint."""
    result = SuiteResult("streaming")
    _layers(runner, plan, result)
    _blocks(runner, plan, result)
    _chains(runner, plan, result)
    _large(runner, plan, result)
    _experts(runner, plan, result)
    dry_runs(runner, plan, _rounds(runner), result)
    if plan.checkpoint is not None:
        exports(runner, plan, plan.checkpoint, result)
    return result


def _rounds(runner: Runner) -> int:
    return min(runner.rounds, _MOST_ROUNDS)


def _layers(runner: Runner, plan: Plan, result: SuiteResult) -> None:
    jobs = {}
    for layers in plan.layers:
        config = config_of(plan.model, layers)
        jobs[f"streaming, {layers}"] = partial(ours, runner, config, plan, streaming=True)
        jobs[f"buffered, {layers}"] = partial(ours, runner, config, plan, streaming=False)
        if layers <= plan.peer_layers:
            jobs[f"jax.export, {layers}"] = partial(jax_export, runner, config, plan)
    results = runner.interleaved(jobs, _rounds(runner))
    title = f"Forward of the 22-layer model's layers, T = {plan.sequence}, weights abstract, by number of layers"
    result.tables.append(Table(title, [row(name, rows, name.startswith("jax")) for name, rows in results.items()]))
    first, last = plan.layers[0], plan.layers[-1]
    least, most = results[f"streaming, {first}"], results[f"streaming, {last}"]
    for kind, key in (("RSS", "rss_bytes"), ("anonymous", "anonymous_bytes")):
        text = f"streaming, {first} to {last} layers: growth of the peak, {kind}, MiB"
        result.goals.append(Goal(text, "<=", 2, growth(most, least, key)))
    result.goals.append(Goal(f"streaming, {last} layers: seconds", "<=", 1, Summary.of_key(most, "seconds")))
    for layers in plan.layers:
        texts = results[f"streaming, {layers}"], results[f"buffered, {layers}"]
        result.facts[f"{layers} layers: streamed text is the buffered text"] = same_text(*texts)


def _blocks(runner: Runner, plan: Plan, result: SuiteResult) -> None:
    jobs = {
        f"streaming, {blocks} blocks": partial(ours, runner, config_of(TINY, blocks), plan, streaming=True)
        for blocks in plan.blocks
    }
    results = runner.interleaved(jobs, 1)
    result.tables.append(Table("The same of a tiny model, one round", [row(*pair) for pair in results.items()]))
    least, most = results.values()
    for kind, key in (("RSS", "rss_bytes"), ("anonymous", "anonymous_bytes")):
        text = f"{plan.blocks[0]} to {plan.blocks[1]:,} blocks: growth of the peak, {kind}, MiB"
        result.goals.append(Goal(text, "<=", 4, growth(most, least, key)))


def _chains(runner: Runner, plan: Plan, result: SuiteResult) -> None:
    """Adds what no layer cuts into small parts: a flat function, and one block; and blocks that all differ."""
    kinds = {"flat": "none", "one block": "one", "unlike blocks": "unlike"}
    jobs = {
        f"{name}, {nodes:,} nodes": partial(chain, runner, nodes, blocks)
        for name, blocks in kinds.items()
        for nodes in plan.chain_nodes
    }
    jobs["flat, buffered"] = partial(chain, runner, plan.chain_nodes[1], "none", streaming=False)
    results = runner.interleaved(jobs, 1)
    cases = [
        Case(
            name,
            {
                "seconds": Summary.of_key(rows, "seconds"),
                "processor seconds": Summary.of_key(rows, "cpu_seconds"),
                "RSS +MiB": Summary.of_key(rows, "rss_bytes", MIB),
                "anonymous +MiB": Summary.of_key(rows, "anonymous_bytes", MIB),
                "nodes of the largest stretch": Summary.of_key(rows, "largest"),
            },
        )
        for name, rows in results.items()
    ]
    result.tables.append(Table("A chain of ops, streaming where nothing else is said, one round", cases))
    for name in kinds:
        least, most = (results[f"{name}, {nodes:,} nodes"] for nodes in plan.chain_nodes)
        for kind, key in (("RSS", "rss_bytes"), ("anonymous", "anonymous_bytes")):
            text = f"{name}, {plan.chain_nodes[0]:,} to {plan.chain_nodes[1]:,} nodes: growth of the peak, {kind}, MiB"
            result.goals.append(Goal(text, "<=", 4, growth(most, least, key)))
    texts = results[f"flat, {plan.chain_nodes[1]:,} nodes"], results["flat, buffered"]
    result.facts["flat: streamed text is the buffered text"] = same_text(*texts)


def _large(runner: Runner, plan: Plan, result: SuiteResult) -> None:
    config = large_config(plan.large)
    sizes = f"{plan.large.layers} layers, D = {plan.large.hidden}, F = {plan.large.intermediate}"
    title = f"The shape of Llama 3.1 405B ({sizes}, V = {plan.large.vocabulary}), weights abstract"
    peers = {"jax.export, forward alone": partial(jax_export, runner, config, plan)}
    _prefill_and_decode(runner, plan, result, "405B", title, config, peers)


def _experts(runner: Runner, plan: Plan, result: SuiteResult) -> None:
    for name, config in plan.experts.items():
        sizes = f"{config['num_hidden_layers']} layers, D = {config['hidden_size']}, V = {config['vocab_size']}"
        title = f"The shape of {name} ({sizes}, mixtures of experts), weights abstract"
        _prefill_and_decode(runner, plan, result, name, title, config, {})


def _prefill_and_decode(
    runner: Runner,
    plan: Plan,
    result: SuiteResult,
    name: str,
    title: str,
    config: Mapping[str, Any],
    peers: Mapping[str, Callable[[], Result]],
) -> None:
    lower = partial(ours, runner, config, plan, entry_points=("prefill", "decode"), max_sequence=plan.capacity)
    jobs = {
        "streaming, prefill and decode": partial(lower, streaming=True),
        "buffered, prefill and decode": partial(lower, streaming=False),
        **peers,
    }
    results = runner.interleaved(jobs, _rounds(runner))
    result.tables.append(Table(title, [row(job, rows, job in peers) for job, rows in results.items()]))
    streamed, buffered = results["streaming, prefill and decode"], results["buffered, prefill and decode"]
    result.goals += [
        Goal(f"{name}, streaming: seconds", "<=", 2, Summary.of_key(streamed, "seconds")),
        Goal(f"{name}, streaming: RSS over imports, MiB", "<=", 12, Summary.of_key(streamed, "rss_bytes", MIB)),
    ]
    result.facts[f"{name}: streamed text is the buffered text"] = same_text(streamed, buffered)
