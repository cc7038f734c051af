"""The stub's reader finds the same requests however their bytes are cut."""

from __future__ import annotations

from benchmarks.request_reader import Request, RequestReader

GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LENGTH = b"POST /a HTTP/1.1\r\nContent-Length: 11\r\n\r\nhello\r\n\r\nyou"[:-1]
CHUNKED = (
    b"POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\nx-trailer: y\r\n\r\n"
)
ALL = GET + LENGTH + CHUNKED + GET
REQUESTS = [
    Request("GET", "/health", b""),
    Request("POST", "/a", b"hello\r\n\r\nyo"),
    Request("POST", "/b", b"hello0123456789"),
    Request("GET", "/health", b""),
]


def read(data: bytes, size: int, *, keep: bool) -> list[Request]:
    """The requests in `data`, fed in pieces of `size` bytes."""
    requests: list[Request] = []
    reader = RequestReader(requests.append, lambda method, path: keep)
    for start in range(0, len(data), size):
        reader.feed(memoryview(data)[start : start + size])
    return requests


def test_requests_are_the_same_however_they_are_cut() -> None:
    for size in range(1, len(ALL) + 1):
        assert read(ALL, size, keep=True) == REQUESTS, size


def test_bodies_are_not_kept_unless_asked_for() -> None:
    assert [request.body for request in read(ALL, 7, keep=False)] == [b""] * 4


def test_request_has_ended_with_its_last_byte_and_not_before() -> None:
    assert len(read(CHUNKED, 10, keep=True)) == 1
    assert read(CHUNKED[:-1], 10, keep=True) == []
    assert read(LENGTH[:-1], 10, keep=True) == []


def test_head_longer_than_one_look_is_put_together() -> None:
    padding = b"X-Long: " + b"a" * 5000
    assert read(b"GET /c HTTP/1.1\r\n" + padding + b"\r\n\r\n" + GET, 4096, keep=True) == [
        Request("GET", "/c", b""),
        Request("GET", "/health", b""),
    ]
