"""Bodies of requests: what is no JSON, and limits."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline.server._errors import RequestError
from tapeline.server._json import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.integers(0, 6))
def test_a_value_is_read_unless_it_nests_too_deep(value: object, depth: int) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    if depth_of(value) <= depth:
        assert parse_json(body, depth) == value
    else:
        with pytest.raises(RequestError, match=f"nests deeper than {depth} lists and objects"):
            parse_json(body, depth)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        parse_json(body, 8)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b"\xff", "is not UTF-8 .byte 0"),
        (b"[NaN]", "NaN is no number of JSON"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b"[" * 100_000 + b"]" * 100_000, "nests deeper than 64"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nests deeper than 64"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b'{"\\ud800": 1}', "half of a surrogate pair"),
        (b"[" + b"9" * 5_000 + b"]", "the body is no JSON"),
    ],
)
def test_refusals(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_json(body, 64)
