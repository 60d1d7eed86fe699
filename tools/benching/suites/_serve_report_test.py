"""The figures of a run of servers whose times are made up."""

import dataclasses
from typing import Any

import pytest

from lang_core import InputError
from tools.benching.suites._figures import SuiteResult
from tools.benching.suites._plan import tiny_plan
from tools.benching.suites._run import Runner
from tools.benching.suites._serve_peer import SERVER, ServerPeer, find_server
from tools.benching.suites._serve_report import (
    ALONE,
    GENERATE,
    IN_8_BITS,
    OPEN,
    OWN,
    PREFIX,
    Served,
    closed,
    report,
)
from tools.benching.suites._serve_rows import Requests, ServeGroup, ServeSizes
from tools.benching.suites._serve_suite import serve

SIZES = ServeSizes(clients=((1, 1), (8, 2)))
PEER = ServerPeer("llama-server", "1234")
OWN_8 = f"{OWN}{IN_8_BITS}"


def turn(seconds: float, *gaps: float) -> dict[str, Any]:
    """A loop of two answers of three tokens."""
    answer = {"tokens": 3, "gap_seconds": list(gaps)}
    first = {**answer, "first_seconds": seconds / 10}
    return {"seconds": seconds, "answers": [first, {**answer, "first_seconds": seconds / 5}]}


def measured(*systems: str) -> SuiteResult:
    times = {OWN: (1.0, 2.0), OWN_8: (1.0, 1.0), SERVER: (4.0, 2.0)}
    loops = {name: [turn(seconds, 0.001, 0.003) for seconds in times[name]] for name in systems}
    results = {
        closed(1): loops,
        closed(8): loops,
        OPEN: loops,
        PREFIX: {name: [{"cold": 2.0, "warm": 0.1}] * 2 for name in systems},
        ALONE: loops
        | {
            name.replace(OWN, GENERATE): [{"gap_seconds": [0.0015, 0.0015, 9.0]}] * 2
            for name in systems
            if name != SERVER
        },
    }
    plan = dataclasses.replace(tiny_plan(), serve=SIZES, server=PEER if SERVER in systems else None)
    return report(plan, [Served(ServeGroup("Q8_0"), results, {name: True for name in systems if name != SERVER})])


def value(result: SuiteResult, table: int, case: str, column: str) -> tuple[float, float, float]:
    values = next(entry.values for entry in result.tables[table].cases if entry.name == case)
    return values[column].minimum, values[column].median, values[column].maximum


def test_ratios_are_taken_within_rounds() -> None:
    result = measured(OWN, SERVER)
    assert value(result, 0, "tapeline, 8 clients", "tokens/s") == pytest.approx((3.0, 4.5, 6.0))
    assert value(result, 0, "tapeline, 8 clients", "tokens/s, times llama-server") == pytest.approx((1.0, 2.5, 4.0))
    assert value(result, 0, "tapeline, 1 client", "first token, p50, s") == pytest.approx((0.15, 0.225, 0.3))
    assert value(result, 0, "llama-server, open loop", "between tokens, p50, ms") == pytest.approx((2.0,) * 3)
    assert value(result, 1, "tapeline", "warm over cold") == pytest.approx((0.05,) * 3)
    assert value(result, 2, "tapeline", "over generate, ms") == pytest.approx((0.5,) * 3)


def test_what_is_wanted_is_judged() -> None:
    goals = {goal.text: goal.met for goal in measured(OWN, SERVER).goals}
    assert goals == {
        "Q8_0: 8 clients: tokens/s, times llama-server": True,
        "Q8_0: 8 clients: first token, p95, times llama-server": True,
        "Q8_0: 8 clients: between tokens, p99, times llama-server": True,
        "Q8_0: open loop: first token, p95, times llama-server": True,
        "Q8_0: open loop: between tokens, p99, times llama-server": True,
        "Q8_0: warm prefix over cold": True,
        "Q8_0: one client: over generate, ms per token": True,
    }


def test_without_the_peer_nothing_is_held_against_it() -> None:
    result = measured(OWN)
    assert [goal.text for goal in result.goals] == [
        "Q8_0: warm prefix over cold",
        "Q8_0: one client: over generate, ms per token",
    ]
    assert not result.notes
    assert not [case for table in result.tables for case in table.cases if case.peer]


def test_activations_of_8_bits_stand_beside_exact_ones() -> None:
    result = measured(OWN, OWN_8, SERVER)
    assert value(result, 0, f"{OWN_8}, 8 clients", "tokens/s, times llama-server") == pytest.approx((2.0, 3.0, 4.0))
    assert [case.name for case in result.tables[2].cases] == [
        "generate, no server",
        "generate, x in 8 bits, no server",
        OWN,
        OWN_8,
        SERVER,
    ]
    goals = [goal.text for goal in result.goals]
    assert len(goals) == 14
    assert "Q8_0, x in 8 bits: 8 clients: tokens/s, times llama-server" in goals
    assert "Q8_0, x in 8 bits: one client: over generate, ms per token" in goals
    assert "Q8_0, x in 8 bits: answers among others are those alone" in result.facts
    alone = measured(OWN_8, SERVER)
    assert [case.name for case in alone.tables[1].cases] == [OWN_8, SERVER]


def test_a_share_of_the_requests_is_one_per_client_at_least() -> None:
    fewer = ServeSizes().fewer(0.75)
    assert (fewer.clients, fewer.arrivals) == (((1, 3), (4, 6), (8, 12), (16, 24)), 18)
    assert ServeSizes().fewer(0.1).clients == ((1, 1), (4, 4), (8, 8), (16, 16))


def test_speeds_are_drawn_and_the_peer_is_named() -> None:
    result = measured(OWN, SERVER)
    assert [panel.column for panel in result.panels] == ["tokens/s"]
    assert result.notes == [PEER.about()]
    assert result.facts == {"Q8_0: answers among others are those alone": True}


def test_requests_are_mixed() -> None:
    requests = Requests(ServeSizes(), 256, "seed").mixed(200)
    prompts = [request["body"]["prompt"] for request in requests]
    lengths = [len(prompt) for prompt in prompts]
    assert min(lengths) >= 16
    assert max(lengths) <= 1000
    assert min(lengths) < 32 < 500 < max(lengths)
    assert len({tuple(prompt[:128]) for prompt in prompts[1::2]}) == 1
    assert len({tuple(prompt[:16]) for prompt in prompts[::2]}) == 100
    assert min(map(min, prompts)) >= 3
    assert requests == Requests(ServeSizes(), 256, "seed").mixed(200)


def test_arrivals_and_prefixes() -> None:
    drawn = Requests(ServeSizes(), 256, "seed")
    times = [request["at"] for request in drawn.arriving(400, 2.0)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(200, rel=0.3)
    (cold,), (warm,) = drawn.cold_and_warm()
    prompts = [request["body"]["prompt"] for request in (cold, warm)]
    assert [len(prompt) for prompt in prompts] == [1000, 1000]
    assert prompts[0][:990] == prompts[1][:990]
    assert prompts[0] != prompts[1]
    assert ServeSizes().capacity == 1088


def test_the_peers_program() -> None:
    with pytest.raises(
        InputError, match=r"--peer_server=nowhere: cannot be started .*: name the llama-server that was"
    ):
        find_server("nowhere")
    with pytest.raises(InputError, match="--peer_server=true: does not tell its version as llama-server does"):
        find_server("true")


def test_bits_that_are_not_served(tmp_path: Any) -> None:
    plan = dataclasses.replace(tiny_plan(), serve_groups=())
    with pytest.raises(InputError, match="--bits: the suite serve has Q4_0 or Q8_0: name one of them"):
        serve(Runner(1, tmp_path, print), plan)
