import threading

import pytest

from tapeline.running.transcribing._turns import FairLock


def test_threads_take_turns_in_the_order_in_which_they_came() -> None:
    lock, turns = FairLock(), list[str]()
    started, go = threading.Barrier(3), threading.Barrier(3)

    def work(name: str) -> None:
        started.wait()
        go.wait()
        for _ in range(20):
            with lock:
                turns.append(name)
                # The lock is given back only when the others wait again, so that the order is known.
                while len(lock._waiting) < sum(count(other) < 20 for other in "abc" if other != name):
                    pass

    def count(name: str) -> int:
        return turns.count(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 60
    for place in range(0, 57, 3):
        assert sorted(turns[place : place + 3]) == ["a", "b", "c"], turns


def test_an_error_gives_the_lock_back() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    with lock:
        assert lock._taken
    assert not lock._taken


@pytest.mark.parametrize("handed", [False, True])
def test_a_thread_that_gives_up_waiting_does_not_keep_the_lock(handed: bool) -> None:
    lock = FairLock()
    turn = threading.Lock()
    with lock:
        lock._waiting.append(turn)
        turn.acquire()
        if not handed:
            lock._leave(turn)
    if handed:
        assert lock._taken
        lock._leave(turn)
    assert not lock._taken
