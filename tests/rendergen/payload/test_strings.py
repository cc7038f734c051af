"""Where strings end, against a reader that goes byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload.strings import LARGEST_WINDOW, StringScanner, ends_inside_escape, without_escapes
from tests.rendergen.payload.documents import cut, randoms, repeatable

hard = st.text(st.sampled_from('\\"a'), max_size=60).map(str.encode)
repeated = st.builds(lambda part, times: part * times, hard, st.sampled_from([1, 2, 10, 500]))
tails = st.builds(bytes.__add__, repeated, repeated)


def closing_quote(data: bytes) -> int | None:
    """Where the first quote is that no backslash escapes."""
    pos = 0
    while pos < len(data):
        if data[pos : pos + 1] == b'"':
            return pos
        pos += 2 if data[pos : pos + 1] == b"\\" else 1
    return None


def advance(chunks: list[bytes]) -> int | None:
    """Where `StringScanner` finds the closing quote."""
    scanner, offset = StringScanner(), 0
    for chunk in chunks:
        stop = scanner.advance(chunk, 0)
        if scanner.closed:
            return offset + stop - 1
        assert stop == len(chunk)
        offset += len(chunk)
    return None


@repeatable
@given(tails, randoms)
def test_closing_quote(data, rng):
    """The string ends at the first quote that is not escaped, however the bytes are cut."""
    assert advance(cut(data, rng)) == closing_quote(data)


@pytest.mark.parametrize("run", [0, 1, 2, 3, 63, 64, 65, 66, 256, 257, 1_023, 4_097, LARGEST_WINDOW + 1])
@pytest.mark.parametrize("before", [b"", b"a", b'\\"', b"a" * 100 + b'\\"'])
def test_backslash_runs(before, run):
    """Of a run of backslashes before a quote an odd one escapes it; the chunk may end anywhere in the run."""
    data = before + b"\\" * run + b'""'
    expected = len(data) - (1 if run % 2 else 2)
    assert advance([data]) == expected
    for middle in {1, 2, run // 2, run // 2 + 1, run, run + 1, len(before) + run, len(data) - 1}:
        assert advance([data[:middle], data[middle:]]) == expected


@repeatable
@given(tails)
def test_without_escapes(data):
    """Only escaped quotes and backslashes are overwritten, in place; quotes that are left are real."""
    text = without_escapes(data)
    assert len(text) == len(data)
    assert text.find(b'"') == (-1 if closing_quote(data) is None else closing_quote(data))
    changed = [data[n : n + 1] + text[n : n + 1] for n in range(len(data)) if data[n] != text[n]]
    assert set(changed) <= {b"\\_", b'"_'}


@repeatable
@given(hard, st.integers(0, 200))
def test_ends_inside_escape(data, run):
    """The run of backslashes is counted back to `start` and no further."""
    data += b"a" + b"\\" * run
    assert ends_inside_escape(data, 0, len(data)) == (run % 2 == 1)
    start = len(data) - run // 2
    assert ends_inside_escape(data, start, len(data)) == (run // 2 % 2 == 1)
