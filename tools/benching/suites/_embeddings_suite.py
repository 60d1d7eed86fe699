"""Suite ``embeddings``: sentences of different lengths as vectors, beside sentence-transformers and ONNX Runtime."""

import contextlib
import json
import os
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tools.benching.suites._figures import Case, Goal, SuiteResult, Table
from tools.benching.suites._peer import peer_environment
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner, environment
from tools.benching.suites._stats import Summary
from tools.benching.suites._worker import Worker

_OURS: Final = "tapeline"
_ALONE: Final = "tapeline, a sentence per call"
_INT8: Final = "int8"
_FASTER: Final = 1.3  # times a peer in f32 that was asked for
_FIRST_S: Final = 1.0
_ALIKE: Final = 0.9999  # least cosine with a peer in f32
# Words that are a token each in BERT's vocabulary.
WORDS: Final = tuple(
    "the of and to in is was for on that with as it by at from his an were are which this be had first or one their"
    " new after who they two her she been other when there all during into school time may years more most only over"
    " city some world would where later up such used many can state about national out known university united then"
    " made people these house water small road park number family river music early line high game long name".split()
)


def embeddings(runner: Runner, plan: Plan) -> SuiteResult:
    """Exports a model of sentence-transformers, and lets the bundle and the peers take turns at the sentences."""
    result = SuiteResult("embeddings")
    above = runner.workdir / "embeddings"
    above.mkdir()
    try:
        model = plan.sentence_model or _written(runner, plan, above)
        runner.say("exporting the model ...")
        command = [sys.executable, "-m", "tools.export", f"--model={model}", f"--output={above / 'bundle'}"]
        runner.command([*command, "--target=llvm-cpu", "--verify=none"])
        _measure(runner, plan, model, above, result)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    return result


def drawn_sentences(count: int, words: tuple[int, int]) -> list[str]:
    """Returns sentences of words, whose numbers are drawn uniformly between two.

    >>> drawn_sentences(2, (1, 3)) == drawn_sentences(2, (1, 3)), len(drawn_sentences(1, (4, 4))[0].split())
    (True, 4)
    """
    drawn = random.Random(7)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(*words))) for _ in range(count)]


def _written(runner: Runner, plan: Plan, above: Path) -> Path:
    runner.say("writing a checkpoint ...")
    job: dict[str, Any] = {"directory": str(above / "model"), "config": dict(plan.sentence_config), "words": WORDS}
    runner.job("tools.benching.jobs.sentence_checkpoint", **job)
    return above / "model"


def _measure(runner: Runner, plan: Plan, model: Path, above: Path, result: SuiteResult) -> None:
    """Has every system embed the sentences within each round, and adds what they take."""
    sentences = drawn_sentences(plan.sentences, plan.sentence_words)
    few = sentences[: max(1, plan.sentences // 8)]
    with contextlib.ExitStack() as stack:
        workers = {_OURS: stack.enter_context(_started(runner, above / "bundle"))}
        first = Summary.of([workers[_OURS].ready["seconds"]])
        workers |= {name: stack.enter_context(worker) for name, worker in _peers(runner, plan, model).items()}
        files = {name: above / f"{number}.npy" for number, name in enumerate(workers)}
        jobs = {name: partial(worker.ask, texts=sentences, file=str(files[name])) for name, worker in workers.items()}
        alone = partial(_each_alone, workers[_OURS], few, above / "alone.npy")
        for name, worker in workers.items():
            runner.say(f"warming {name} ...")
            worker.ask(texts=few, file=str(files[name]))
        turns = runner.interleaved({**jobs, _ALONE: alone})
        vectors = {name: np.load(file) for name, file in files.items()}
    counts = {name: len(few) if name == _ALONE else len(sentences) for name in turns}
    result.tables.append(
        Table(
            f"{plan.sentences} sentences of {plan.sentence_words[0]} to {plan.sentence_words[1]} words",
            [_case(name, turns, counts) for name in turns],
        )
    )
    for name in vectors:
        if name == _OURS:
            continue
        if _INT8 not in name:
            cosines = (vectors[name] * vectors[_OURS]).sum(1)
            lengths = np.linalg.norm(vectors[name], axis=1) * np.linalg.norm(vectors[_OURS], axis=1)
            result.facts[f"vectors are those of {name}"] = bool((cosines / lengths).min() > _ALIKE)
            result.goals.append(Goal(f"sentences/s, times {name}", ">=", _FASTER, _ratio(turns, name)))
    result.goals.append(Goal("first vector after the start of loading, s", "<=", _FIRST_S, first))
    result.facts["vectors are finite"] = bool(np.isfinite(vectors[_OURS]).all())
    result.notes.append(f"Tokens of all sentences: {turns[_OURS][0]['tokens']}. Tapeline computes in f32.")
    if plan.sentence_peer is not None:
        result.notes.append(plan.sentence_peer.about())


def _each_alone(worker: Worker, sentences: Sequence[str], file: Path) -> Result:
    answers = [worker.ask(texts=[sentence], file=str(file)) for sentence in sentences]
    return {key: sum(answer[key] for answer in answers) for key in ("seconds", "cpu_seconds")}


def _case(name: str, turns: Mapping[str, Sequence[Result]], counts: Mapping[str, int]) -> Case:
    values = {
        "sentences/s": Summary.of(counts[name] / turn["seconds"] for turn in turns[name]),
        "sentences per second of processor time": Summary.of(
            counts[name] / turn["cpu_seconds"] for turn in turns[name]
        ),
    }
    peer = name not in (_OURS, _ALONE)
    if peer:
        values["tapeline, times it"] = _ratio(turns, name)
    return Case(name, values, peer=peer)


def _ratio(turns: Mapping[str, Sequence[Result]], name: str) -> Summary:
    return Summary.of_pairs(turns[_OURS], turns[name], lambda ours, theirs: theirs["seconds"] / ours["seconds"])


def _started(runner: Runner, bundle: Path) -> Worker:
    arguments = json.dumps({"bundle": str(bundle)})
    return Worker([sys.executable, "-m", "tools.benching.jobs.embed", arguments], environment(), runner.workdir)


def _peers(runner: Runner, plan: Plan, model: Path) -> dict[str, Worker]:
    peer, threads = plan.sentence_peer, len(os.sched_getaffinity(0))
    systems = {} if peer is None else peer.systems
    workers = {}
    for name, system in systems.items():
        assert peer is not None
        command = peer.command(model=str(model), system=system, threads=threads)
        workers[name] = Worker(command, peer_environment(), runner.workdir)
    return workers
