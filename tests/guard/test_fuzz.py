"""A short run of the fuzzer, and what hypothesis thinks of."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normula.record.tensorfile import BITS, WeightsError, parse_header
from tests.guard.fuzz import HEADERS, TARGETS, run, tried

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
TENSOR = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*BITS, "F31"]),
        "shape": st.lists(st.integers(-1, 4) | st.integers(), max_size=3),
        "data_offsets": st.lists(st.integers(-1, 40) | st.integers(), min_size=2, max_size=2),
    }
)


def test_random_changes_find_nothing() -> None:
    counts, found = run(minutes=0.04)
    assert min(counts.values()) > 3
    assert not found


@pytest.mark.property
@pytest.mark.parametrize("name", TARGETS)
def test_bytes_that_are_anything(name: str) -> None:
    @given(st.binary(max_size=60))
    def holds(data: bytes) -> None:
        assert tried(name, data) is None

    holds()


@pytest.mark.property
@given(st.dictionaries(st.text(max_size=4), TENSOR | JSON, max_size=3), st.integers(0, 64))
def test_headers_that_are_json(header: dict[str, Any], payload: int) -> None:
    raw = json.dumps(header).encode()
    try:
        found = parse_header(raw, payload, "here")
    except WeightsError:
        return
    sizes = [one.end - one.start for one in found.entries.values()]
    assert sum(sizes) == payload


@pytest.mark.negative
def test_the_fuzzer_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "header", (lambda data: data.decode(), HEADERS))
    assert any("UnicodeDecodeError" in wrong for _, _, wrong in run(minutes=0.1)[1])
