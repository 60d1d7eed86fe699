"""Ranks meet, or say why not."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lang_core import InputError, ProcessError
from run_jax.processes._meeting import Meeting, meet
from run_jax.processes._place import RankPlacement


def _port(host: str = "localhost") -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return server.getsockname()[1]


def _has_ipv6() -> bool:
    try:
        return _port("::1") > 0
    except OSError:
        return False


def _meet(facts: list[Mapping[str, Any]], secrets: list[bytes], timeout: float = 20) -> list[Meeting | Exception]:
    """Has ranks meet in threads; returns what each has then."""
    coordinator = f"localhost:{_port()}"
    outcomes: list[Meeting | Exception] = [ProcessError("")] * len(facts)

    def rank(number: int) -> None:
        try:
            outcomes[number] = meet(
                RankPlacement(coordinator, len(facts), number), facts[number], secrets[number], timeout
            )
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcomes[number] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(facts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_all_meet() -> None:
    facts = {"flags": ["--a", "--b=2"], "jax": "1"}
    outcomes = _meet([facts] * 4, [b"secret"] * 4)
    meetings = [outcome for outcome in outcomes if isinstance(outcome, Meeting)]
    assert [list(meeting.channels) for meeting in meetings] == [[1, 2, 3], [0], [0], [0]]
    assert len({meeting.service for meeting in meetings}) == 1
    for rank in (1, 2, 3):
        meetings[0].channels[rank].send([rank, "go"])
        assert meetings[rank].channels[0].receive() == (rank, "go")
    for meeting in meetings:
        for channel in meeting.channels.values():
            channel.close()


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no loopback of IPv6")
def test_ranks_meet_by_ipv6() -> None:
    place, outcomes = RankPlacement(f"[::1]:{_port('::1')}", 2, 0), list[Meeting]()
    zero = threading.Thread(target=lambda: outcomes.append(meet(place, {}, b"s", 20)))
    zero.start()
    outcomes.append(meet(place._replace(rank=1), {}, b"s", 20))
    zero.join()
    assert len(outcomes) == 2
    for meeting in outcomes:
        assert meeting.service.startswith("[::1]:")
        for channel in meeting.channels.values():
            channel.close()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"jax": "2", "flags": ["--a"]}, r"ranks disagree: jax is '1' on rank 0, and '2' on rank 2: start all ranks"),
        ({"jax": "1", "flags": ["--b"]}, r"ranks disagree: flags has '--a' on rank 0, and '--b' on rank 2"),
        ({"jax": "1", "flags": []}, r"ranks disagree: flags has '--a' on rank 0, and nothing on rank 2"),
        ({"flags": ["--a"]}, r"ranks disagree: jax is '1' on rank 0, and 'nothing' on rank 2"),
    ],
)
def test_a_rank_with_another_version_or_flag_is_refused_by_all(other: Mapping[str, Any], message: str) -> None:
    alike = {"jax": "1", "flags": ["--a"]}
    for outcome in _meet([alike, alike, other], [b""] * 3):
        assert isinstance(outcome, InputError)
        with pytest.raises(InputError, match=message):
            raise outcome


def test_a_process_that_does_not_know_the_token_is_no_rank() -> None:
    zero, one = _meet([{}, {}], [b"right", b"wrong"], 2)
    with pytest.raises(ProcessError, match=r"the other process has another token: it is of another run"):
        raise one if isinstance(one, Exception) else AssertionError
    with pytest.raises(ProcessError, match=r"rank 1 of 2 not found at localhost:\d+ in time: .* a larger `timeout`"):
        raise zero if isinstance(zero, Exception) else AssertionError


def test_nobody_answers() -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"coordinator=localhost:\d+: nobody answers there \(Conn.* within 0.5 s"):
        meet(RankPlacement(f"localhost:{_port()}", 2, 1), {}, b"", 0.5)
    assert time.monotonic() - began < 30


def test_strangers_are_ignored() -> None:
    """Nobody is held up by one who connects and says nothing, or nonsense."""
    place = RankPlacement(f"localhost:{_port()}", 2, 0)
    outcomes: list[Meeting] = []
    threads = [threading.Thread(target=lambda: outcomes.append(meet(place, {}, b"s", 20)))]
    threads[0].start()

    def stranger(do: Callable[[socket.socket], object]) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(place.address, 1) as connection:
                do(connection)
                return
            time.sleep(0.02)

    stranger(lambda connection: connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 9))
    stranger(lambda connection: connection.close())
    one = meet(place._replace(rank=1), {}, b"s", 20)
    threads[0].join()
    assert outcomes[0].service == one.service
    for meeting in (*outcomes, one):
        for channel in meeting.channels.values():
            channel.close()


def test_a_rank_that_there_is_already() -> None:
    coordinator = f"localhost:{_port()}"
    errors: list[Exception] = []

    def rank(number: int) -> None:
        try:
            meet(RankPlacement(coordinator, 3, number), {}, b"", 3)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = sorted(map(str, errors))
    assert any("process_id=1: there is such a rank already" in text for text in texts)
    assert any("rank 2 of 3 not found" in text for text in texts)
