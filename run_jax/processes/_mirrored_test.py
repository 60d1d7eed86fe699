"""Whatever rank 0 does with a session, the others do."""

import gc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import DeviceError, InputError, ProcessError, TensorSpec
from run_jax.processes._leader import Opener
from run_jax.processes._mirrored import Mirrored
from run_jax.processes._ranks_testing import CountingSession, Ranks
from run_jax.processes._wire import Handle, Written, read_written


def _opener(diary: list[str], **facts: Any) -> Opener:
    def opener(arguments: Mapping[str, Any]) -> tuple[CountingSession, Mapping[str, Any]]:
        diary.append(f"open {arguments['path']}")
        return CountingSession(diary), facts

    return opener


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(-5, 5)),
        st.tuples(st.just("read"), st.integers(0, 1)),
        st.tuples(st.just("write"), st.floats(-4, 4, width=32)),
        st.tuples(st.just("replace"), st.integers(0, 1)),
        st.tuples(st.just("refuse"), st.just(0)),
        st.tuples(st.just("hold"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(steps=_STEPS)
def test_every_rank_does_what_rank_0_does(steps: list[tuple[str, Any]]) -> None:
    diaries: list[list[str]] = [[], [], []]
    ranks = Ranks([_opener(diary) for diary in diaries])
    session: Any = ranks.leader.open({"path": "here"})
    step, refuses = session.updating("step", 1), session.updating("refuses")
    held = session.hold([session.upload(np.full((2, 3), k, np.float32)) for k in range(2)])
    for kind, value in steps:
        if kind == "step":
            results = step(held, value, np.arange(3, dtype=np.int32))
            np.testing.assert_array_equal(results[0].numpy(), held.read(0, (slice(None),)))
        elif kind == "read":
            assert held.read(value, (0, slice(1, 3))).shape == (2,)
        elif kind == "write":
            held.write(1, (1,), np.full(3, value, np.float32))
        elif kind == "replace":
            held.replace({value: session.upload(np.ones((2, 3), np.float32))})
        elif kind == "refuse":
            with pytest.raises(DeviceError, match="'refuses' takes nothing"):
                refuses(held)
        else:
            held = session.hold([session.upload(np.zeros((2, 3), np.float32)) for _ in range(2)])
    session.close()
    ranks.leader.end()
    ranks.join()
    assert not ranks.errors
    assert not ranks.losses
    assert diaries[1].pop() == diaries[2].pop() == "close"  # every session is closed at the end, once more if need be
    assert diaries[1] == diaries[2] == diaries[0]


def test_what_rank_0_drops_others_drop() -> None:
    diary: list[str] = []
    ranks = Ranks([_opener([]), _opener(diary)])
    session: Any = ranks.leader.open({"path": "here"})
    tensors = [session.upload(np.zeros(1, np.float32)) for _ in range(50)]
    numbers = [tensor.shared_number for tensor in tensors]
    del tensors
    gc.collect()
    last = session.upload(np.zeros(1, np.float32))
    assert isinstance(last, Mirrored)
    assert last.shared_number == numbers[-1] + 1
    assert session.device == "counting"  # what computes nothing is rank 0's own
    with pytest.raises(AttributeError, match="no attribute 'uplaod'"):
        session.uplaod(1)
    ranks.leader.end()
    ranks.join()
    assert not ranks.errors


def test_ranks_with_other_bundles_are_refused() -> None:
    openers = [_opener([], path="/b", weights="12ab"), _opener([], path="/b", weights="12ab")]
    ranks = Ranks([*openers, _opener([], path="/b", weights="9f00")])
    with pytest.raises(InputError, match=r"ranks disagree: weights is '12ab' on rank 0, and '9f00' on rank 2: give"):
        ranks.leader.open({"path": "here"})
    ranks.leader.end()
    ranks.join()
    assert not ranks.errors


def test_a_rank_that_cannot_open_what_rank_0_opens_is_named() -> None:
    def refuses(arguments: Mapping[str, Any]) -> Any:
        raise InputError(f"{arguments['path']} is not there")

    ranks = Ranks([_opener([]), refuses])
    with pytest.raises(InputError, match=r"rank 1: here is not there"):
        ranks.leader.open({"path": "here"})
    assert not ranks.losses
    both = Ranks([refuses, refuses])
    with pytest.raises(InputError, match=r"^here is not there"):
        both.leader.open({"path": "here"})
    for pair in (ranks, both):
        pair.leader.end()
        pair.join()
        assert not pair.errors


def test_ranks_that_are_no_longer_alike_end() -> None:
    class Odd(CountingSession):
        def upload(self, array: np.ndarray) -> Any:
            raise DeviceError(f"no memory for {array.nbytes} bytes")

    def odd(arguments: Mapping[str, Any]) -> Any:
        del arguments
        return Odd([]), {}

    ranks = Ranks([_opener([]), odd])
    ranks.leader.open({"path": "here"}).upload(np.zeros(2, np.float32))
    assert ranks.lost.wait(20)
    assert ranks.losses == ["rank 1: no memory for 8 bytes"]
    ranks.join()
    assert ranks.errors == {1: "rank 1: no memory for 8 bytes"}  # rank 0 has told the others why

    ranks = Ranks([odd, _opener([])])
    session = ranks.leader.open({"path": "here"})
    for _ in range(2):
        with pytest.raises(DeviceError, match="no memory for 8 bytes"):
            session.upload(np.zeros(2, np.float32))
    assert ranks.lost.wait(20)
    assert ranks.losses == ["rank 1: a call that failed on rank 0 succeeded here: the ranks are out of step"]
    ranks.join()


def test_an_interrupt_of_rank_0_is_no_failure_of_others() -> None:
    class Interrupted(CountingSession):
        def upload(self, array: np.ndarray) -> Any:
            raise KeyboardInterrupt

    def interrupted(arguments: Mapping[str, Any]) -> Any:
        del arguments
        return Interrupted(own), {}

    own: list[str] = []
    others: list[str] = []
    ranks = Ranks([interrupted, _opener(others)])
    session = ranks.leader.open({"path": "here"})
    with pytest.raises(KeyboardInterrupt), session:
        session.upload(np.zeros(2, np.float32))
    assert own == ["close"]
    with pytest.raises(ProcessError, match=r"rank 0 was interrupted in a call, which the other ranks"):
        session.upload(np.zeros(2, np.float32))
    ranks.leader.end()
    ranks.join()
    assert others == ["open here", "close"]
    assert not ranks.errors
    assert not ranks.losses


def test_the_end_of_a_rank_is_told_to_all() -> None:
    ranks = Ranks([_opener([]) for _ in range(3)])
    session = ranks.leader.open({"path": "here"})
    ranks.channels[2].close()
    assert ranks.lost.wait(20)
    assert ranks.losses == ["rank 2 has ended while it was needed: see its output and its exit status"]
    ranks.join()
    assert ranks.errors[1] == ranks.losses[0]
    del session


def test_values_pass_as_they_are() -> None:
    spec = TensorSpec((3, 0, 2), "bf16")
    value = {
        "none": None,
        "numbers": [1, -2.5, True, float("inf")],
        "part": (slice(None), slice(1, None, 2), 4),
        "spec": spec,
        "by_index": {3: np.arange(6, dtype=np.int8).reshape(2, 3).T},
        "empty": np.zeros((3, 0), np.float64),
        "rank0": np.float32(1.5),
        "handle": Handle(7),
    }
    written = Written(value)
    payload = b"".join(array.tobytes() for array in written.arrays)
    copy = read_written(written.text, memoryview(payload), lambda number: f"object {number}")
    assert copy["numbers"] == (1, -2.5, True, float("inf"))
    assert (copy["none"], copy["part"], copy["spec"], copy["handle"]) == (None, value["part"], spec, "object 7")
    np.testing.assert_array_equal(copy["by_index"][3], np.arange(6, dtype=np.int8).reshape(2, 3).T)
    assert (copy["empty"].shape, copy["empty"].dtype, copy["rank0"].dtype) == ((3, 0), np.float64, np.float32)
    with pytest.raises(InputError, match=r"a function cannot be told to other ranks: pass arrays"):
        Written([lambda: 1])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 10_000,
        b'[{"array": 0}, []]',
        b'[null, [["f32", [2, 2]]]]',
        b'[null, [["f32", [9223372036854775807, 2]]]]',
        b'[null, [["x", []]]]',
        b'[{"spec": [[-1], "f32"]}, []]',
        b'[{"slice": []}, []]',
        b'[{"map": [[{"map": []}, 1]]}, []]',
        b'[{"handle": 7}, []]',
        b'[{"a": 1, "b": 2}, []]',
    ],
)
def test_a_damaged_message_is_a_typed_error(text: bytes) -> None:
    with pytest.raises(
        ProcessError, match=r"a message of another rank cannot be read .* version of Tapeline on all ranks"
    ):
        read_written(text, memoryview(b""), {}.__getitem__)
