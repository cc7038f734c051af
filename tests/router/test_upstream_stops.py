"""Stop strings in a text that derender has made: cut off, also where they come in parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.upstream_stops import HeldText, cut

CUTS = {
    "in the middle of the last token": ("1 2 3END and more", "END", False, "1 2 3"),
    "at the end": ("1 2 3END", "END", False, "1 2 3"),
    "all there is": ("END", "END", False, ""),
    "the first of two in a token": ("aEE", "E", False, "a"),
    "kept": ("1 2 3END and more", "END", True, "1 2 3END"),
    "not there": ("1 2 3", "END", False, "1 2 3"),
    "of several bytes": ("빨간색 🩵 x", "🩵", False, "빨간색 "),
}


@pytest.mark.parametrize(("text", "stop", "keep", "left"), CUTS.values(), ids=CUTS)
def test_the_text_ends_before_the_stop_string(text: str, stop: str, keep: bool, left: str) -> None:
    """Or with it, where it is to be kept; what came with its last token never stays."""
    assert cut(text, stop, keep=keep) == left


@given(
    st.text("abE", max_size=12), st.sampled_from(["E", "ab", "abE", "bbbb"]), st.lists(st.integers(1, 4)), st.booleans()
)
def test_a_stream_is_cut_like_a_whole_text(text: str, stop: str, lengths: list[int], keep: bool) -> None:
    """However it comes in parts; and nothing that is cut off has been told before."""
    held = HeldText(["x", stop], keep=keep)
    ended = stop in text
    if ended:
        text = text[: text.index(stop) + len(stop)] + text[:1]
    told, at = "", 0
    for length in lengths:
        if at + length >= (text.index(stop) + len(stop) if ended else len(text)):
            break
        told += "".join(ready for _, ready in held.feed("content", text[at : at + length]))
        at += length
    told += "".join(ready for _, ready in held.finish("content", text[at:], stop if ended else None))
    assert told == (cut(text, stop, keep=keep) if ended else text)


def test_without_stop_strings_nothing_is_held_back() -> None:
    """Each text is told as it comes."""
    held = HeldText([], keep=False)
    assert held.feed("content", "a") == [("content", "a")]


def test_another_kind_of_text_lets_go_what_was_held() -> None:
    """A stop string does not reach from the reasoning into the content."""
    held = HeldText(["END"], keep=False)
    assert held.feed("reasoning", "why E") == [("reasoning", "why")]
    assert held.feed("content", "so") == [("reasoning", " E")]
    assert held.finish("content", "", None) == [("content", "so")]
