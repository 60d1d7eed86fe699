"""Suite ``serve``: our server under load, beside llama.cpp's."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from lang_core import InputError, any_of
from tapeline.bundle import Bundle
from tools.benching.suites._checkpoint import group_folder, suite_folder
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._plan import Plan
from tools.benching.suites._run import Result, Runner, environment
from tools.benching.suites._serve_peer import SERVER
from tools.benching.suites._serve_report import (
    ALONE,
    OPEN,
    PREFIX,
    Served,
    closed,
    generate_name,
    own_name,
    report,
)
from tools.benching.suites._serve_rows import SERVE_GROUPS, Requests, ServeGroup, body
from tools.benching.suites._serve_systems import export, model_file, own_server, peer_server
from tools.benching.suites._worker import Worker

_LOAD: Final = "tools.benching.jobs.http_load"
_GENERATE: Final = "tools.benching.jobs.generate"
_SAME: Final = 4  # answers that are compared with those alone


def serve(runner: Runner, plan: Plan) -> SuiteResult:
    """Measures the groups of ``_serve_rows``, one after the other."""
    if not plan.serve_groups:
        raise InputError(
            f"--bits: the suite serve has {any_of(group.bits for group in SERVE_GROUPS)}: name one of them"
        )
    groups: list[Served] = []
    with suite_folder(runner, plan, "serve", plan.serve_groups) as above:
        for group in plan.serve_groups:
            with group_folder(above, group) as folder:
                groups.append(_group(runner, plan, group, above / "checkpoint", folder))
    return report(plan, groups)


def _group(runner: Runner, plan: Plan, group: ServeGroup, checkpoint: Path, folder: Path) -> Served:
    file = model_file(runner, group, checkpoint, folder)
    bundles = {name: export(runner, plan, file, folder / name, name) for name in plan.activations}
    with contextlib.ExitStack() as stack:
        runner.say("starting servers ...")
        ports = {own_name(name): stack.enter_context(own_server(runner, path)) for name, path in bundles.items()}
        if plan.server is not None:
            ports[SERVER] = stack.enter_context(peer_server(runner, plan, file))
        workers = {generate_name(name): stack.enter_context(_worker(runner, path)) for name, path in bundles.items()}
        # All tokens: of the first few hundred of a real model many are single bytes, whose answers are no text.
        vocabulary = Bundle(bundles[plan.activations[0]]).config.model["vocabulary"]
        turns = _Turns(runner, plan, ports, workers, vocabulary)
        turns.warm()
        for number in range(1, runner.rounds + 1):
            turns.round(number)
        return Served(group, turns.results, turns.same_alone())


def _worker(runner: Runner, bundle: Path) -> Worker:
    """Starts a process that generates without a server."""
    command = [sys.executable, "-m", _GENERATE, json.dumps({"weights": str(bundle)})]
    return Worker(command, environment(), runner.workdir)


class _Turns:
    """Rounds of one group.

    Args:
        runner: starts the measured processes.
        plan: what is measured.
        ports: of the servers, by system.
        workers: generate without a server, by name.
        vocabulary: number of token ids that prompts are drawn from.

    Attributes:
        results: of each round by phase and by system.
    """

    def __init__(
        self, runner: Runner, plan: Plan, ports: Mapping[str, int], workers: Mapping[str, Worker], vocabulary: int
    ) -> None:
        self._runner: Final = runner
        self._plan: Final = plan
        self._ports: Final = ports
        self._workers: Final = workers
        self._vocabulary: Final = vocabulary
        self.results: Final[dict[str, dict[str, list[Result]]]] = {}

    def warm(self) -> None:
        """Has every system answer once, so that its weights are in memory."""
        for port in self._ports.values():
            self._load(port, self._requests("warm").mixed(2), 1)
        for worker in self._workers.values():
            worker.ask(ids=self._requests("warm").ids(8), tokens=2)

    def round(self, number: int) -> None:
        """Has all systems take turns in every phase."""
        sizes = self._plan.serve
        for clients, count in sizes.clients:
            requests = self._requests(f"{number} closed {clients}").mixed(count)
            self._turn(number, closed(clients), lambda port, r=requests, c=clients: self._load(port, r, c))
        arriving = self._requests(f"{number} open").arriving(sizes.arrivals, self._per_second())
        self._turn(number, OPEN, lambda port: self._load(port, arriving, None))
        cold, warm = self._requests(f"{number} prefix").cold_and_warm()
        self._turn(number, PREFIX, lambda port: self._cold_and_warm(port, cold, warm))
        ids = self._requests(f"{number} alone").ids(sizes.shortest)
        one = [{"body": body(ids, sizes.tokens)}]
        jobs = {name: partial(worker.ask, ids=ids, tokens=sizes.tokens) for name, worker in self._workers.items()}
        for _ in range(sizes.alone):
            self._turn(number, ALONE, lambda port: self._load(port, one, 1), jobs)

    def same_alone(self) -> dict[str, bool]:
        """Returns whether our servers' answers among others are those that they give alone, by their names."""
        requests = self._requests("same").mixed(_SAME)

        def texts(port: int, clients: int) -> list[str]:
            return [answer["text"] for answer in self._load(port, requests, clients)["answers"]]

        own = {name: port for name, port in self._ports.items() if name != SERVER}
        return {name: texts(port, len(requests)) == texts(port, 1) for name, port in own.items()}

    def _turn(self, number: int, phase: str, job: Any, more: Mapping[str, Any] | None = None) -> None:
        jobs = {name: partial(job, port) for name, port in self._ports.items()} | dict(more or {})
        for name, result in self._runner.turn(jobs, f"round {number}, {phase}").items():
            self.results.setdefault(phase, {}).setdefault(name, []).append(result)

    def _per_second(self) -> float:
        """Returns how often requests come in the open loop: by the first round's answers, in all rounds the same."""
        sizes = self._plan.serve
        first = [rounds[0] for rounds in self.results[closed(sizes.busy_clients)].values()]
        return sizes.busy * min(len(result["answers"]) / result["seconds"] for result in first)

    def _cold_and_warm(self, port: int, cold: Sequence[Any], warm: Sequence[Any]) -> Result:
        return {
            name: self._load(port, requests, 1)["answers"][0]["first_seconds"]
            for name, requests in (("cold", cold), ("warm", warm))
        }

    def _load(self, port: int, requests: Sequence[Mapping[str, Any]], clients: int | None) -> Result:
        with tempfile.NamedTemporaryFile("w", dir=self._runner.workdir) as file:
            json.dump(requests, file)
            file.flush()
            return self._runner.job(_LOAD, port=port, requests=file.name, clients=clients)

    def _requests(self, seed: str) -> Requests:
        return Requests(self._plan.serve, self._vocabulary, seed)
