"""Stream cursors: what went in comes out, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.services.cursors import decode_cursor, encode_cursor

PLACES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 1000)),
    max_size=5,
)


@given(PLACES)
def test_a_cursor_comes_back_as_it_went(places: dict[str, tuple[int, int]]) -> None:
    text = encode_cursor(places)
    assert decode_cursor(text) == places
    assert text.isascii()
    assert not set(text) & set("\r\n &=#+/")


@pytest.mark.parametrize(
    "text", ["", "x", "%", "bnVsbA", "WzFd", "eyJhIjoxfQ", "eyJhIjpbLTEsMF19", "A" * 20_000, "é"]
)
def test_what_we_did_not_make_is_none(text: str) -> None:
    assert decode_cursor(text) is None


@given(st.text(max_size=100))
def test_no_text_breaks_it(text: str) -> None:
    decode_cursor(text)
