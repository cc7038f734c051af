"""Setting the sampling params of a payload while it passes."""

from __future__ import annotations

from collections.abc import Collection

from rendergen.payload.capture import MemberCapture
from rendergen.payload.errors import MalformedJson
from rendergen.payload.limits import DEFAULT_LIMITS, Limits
from rendergen.payload.members import Piece, written_members
from rendergen.payload.sampling_params import SAMPLING_PARAMS, SamplingParamsEdit, merge_sampling_params
from rendergen.payload.scanner import MemberScanner, ObjectEnded, Span, ValueEnded, ValueStarted

MIB = 1024 * 1024


class SamplingParamsSplicer:
    """Takes a payload in chunks, and gives out the same bytes but for the value of the member `sampling_params`.

    The value is replaced where it stands, or the member inserted right before the closing brace when absent. Bytes
    are given out as soon as they are read, as views of the chunk they came in; only the value of `sampling_params`
    (up to `max_sampling_params_bytes`) is held back, and the members `capture` copied (up to `max_captured_bytes`
    over all of them).

    With `grow_by`, at least the edit's `most_growth()`, the payload grows by exactly so many bytes, so that its length
    is known before its sampling params have come: their value gets spaces before its closing brace.

    Raises `MemberTooLarge` beyond these, `NotAnObject` for sampling params that are no object, and what
    `MemberScanner` does, with offsets in the document. What was given out before an error is the beginning of a
    document that must not be completed.
    """

    def __init__(
        self,
        edit: SamplingParamsEdit,
        *,
        capture: Collection[str] = (),
        max_captured_bytes: int = 8 * MIB,
        max_sampling_params_bytes: int = 4 * MIB,
        grow_by: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._edit = edit
        self._grow_by = grow_by
        self._scanner = MemberScanner(limits)
        self._asked = MemberCapture(capture, max_captured_bytes)
        self._rendered = MemberCapture([SAMPLING_PARAMS], max_sampling_params_bytes)
        self._holding = False
        self._input_span: Span | None = None
        self._output_span: Span | None = None
        self.sampling_params: bytes | None = None
        """The raw value given out, an object, once it has been; None before, and where an absent one stays absent."""

    @property
    def captured(self) -> dict[str, bytes]:
        """Raw values, as received, of the members asked for that have been passed, by decoded key."""
        return self._asked.captured

    @property
    def sampling_params_span(self) -> tuple[Span | None, Span]:
        """Where the value was in the input, None if absent, and where it is in the output.

        Known once the value has been given out. When an absent member stays absent, the second is empty, and stands
        at the closing brace.
        """
        if self._output_span is None:
            raise RuntimeError("the sampling params have not been passed yet")
        return self._input_span, self._output_span

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take the next bytes of the payload. Returns what can be sent on now, in order."""
        offset = self._scanner.position
        events = self._scanner.feed(chunk)
        self._rendered.feed(chunk, offset, events)
        self._asked.feed(chunk, offset, events)
        view = memoryview(chunk)
        pieces: list[Piece] = []
        given = offset
        for event in events:
            match event:
                case ValueStarted(name=name, start=start) if name == SAMPLING_PARAMS:
                    pieces.append(view[given - offset : start - offset])
                    self._holding = True
                case ValueEnded(name=name, span=span) if name == SAMPLING_PARAMS:
                    pieces.append(self._merged(span))
                    self._holding, given = False, span.end
                case ObjectEnded() if self._output_span is None:
                    pieces += (view[given - offset : event.brace - offset], self._inserted(event))
                    given = event.brace
        if not self._holding:
            pieces.append(view[given - offset :])
        return [piece for piece in pieces if piece]

    def finish(self) -> list[Piece]:
        """The payload has ended. Raises `TruncatedJson`, a `MalformedJson`, if its object has not."""
        self._scanner.finish()
        return []

    def _merged(self, span: Span) -> bytes:
        try:
            value = merge_sampling_params(self._rendered.captured[SAMPLING_PARAMS], self._edit)
        except MalformedJson as error:
            raise MalformedJson(span.start + error.offset, error.reason) from error
        self.sampling_params = value
        value = self._padded(value, instead_of=span.end - span.start)
        # Whatever was given out before is as long as it came.
        self._input_span = span
        self._output_span = Span(span.start, span.start + len(value))
        return value

    def _padded(self, value: bytes, instead_of: int) -> bytes:
        """`value`, made as long as `grow_by` asks where it takes the place of so many bytes."""
        if self._grow_by is None:
            return value
        return value[:-1].ljust(self._grow_by + instead_of - 1) + value[-1:]

    def _inserted(self, end: ObjectEnded) -> bytes:
        if self._edit.is_empty():
            self._output_span = Span(end.brace, end.brace)
            return b""
        self.sampling_params = value = merge_sampling_params(None, self._edit)
        frame = len(written_members({SAMPLING_PARAMS: b""}, after_others=end.members > 0))
        value = self._padded(value, instead_of=-frame)
        member = written_members({SAMPLING_PARAMS: value}, after_others=end.members > 0)
        after = end.brace + len(member)
        self._output_span = Span(after - len(value), after)
        return member


def splice_sampling_params(data: bytes, edit: SamplingParamsEdit, limits: Limits = DEFAULT_LIMITS) -> list[Piece]:
    """A whole payload with its sampling params set as `edit` says; see `SamplingParamsSplicer`.

    Returns pieces to be written in order. Sampling params of any size are taken, as `data` is held in any case.
    """
    splicer = SamplingParamsSplicer(edit, max_sampling_params_bytes=len(data), limits=limits)
    return splicer.feed(data) + splicer.finish()
