"""What becomes of connections to pods: kept, closed, used again, and never left open by mistake."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from rendergen.service.errors import PodFailed
from rendergen.service.pods import Body
from tests.support.clients import asked, client_of, pieces
from tests.support.polling import eventually, soon
from tests.support.raw_pod import Connection, Script, raw_pod
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
REPLAYABLE: dict[str, Callable[[], Body]] = {
    "bytes": lambda: b"{}",
    "pieces": lambda: (b"{", b"}"),
    "none": lambda: b"",
}


async def serves(connection: Connection) -> None:
    """Answers for as long as it is asked."""
    while True:
        await connection.request()
        await connection.send(ANSWER)


def serves_one_then(end: Callable[[Connection], None]) -> Script:
    """Answers one request, and ends the connection as the next one arrives on it."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(ANSWER)
        await connection.head()
        end(connection)

    return script


ENDS: dict[str, Callable[[Connection], None]] = {
    "closed": lambda connection: connection.writer.close(),
    "reset": lambda connection: connection.reset(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("body", REPLAYABLE.values(), ids=REPLAYABLE)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_kept_connection_that_ends_as_it_is_used_is_made_anew(
    end: Callable[[Connection], None], body: Callable[[], Body], method: str
) -> None:
    """The pod closed it while it was idle, and the request crossed with that; the caller sees nothing of it."""
    async with raw_pod(serves_one_then(end), serves) as pod, client_of(pod.url) as client:
        for _ in range(3):
            assert await asked(client, body(), method) == b"{}"
        assert len(pod.connections) == 2


@pytest.mark.parametrize("together", [True, False])
async def test_a_connection_on_which_the_pod_failed_is_not_used_again(together: bool) -> None:
    """uvicorn closes it after a 500 without saying so; the next request, which cannot be sent again, is not lost."""

    async def fails_once(connection: Connection) -> None:
        await connection.request()
        head, body = b"HTTP/1.1 500 Error\r\nContent-Length: 2\r\n\r\n", b"{}"
        for part in (head + body,) if together else (head, body):
            await connection.send(part)
            await asyncio.sleep(0)
        await connection.head()
        connection.reset()

    async with raw_pod(fails_once, serves) as pod, client_of(pod.url) as client:
        with pytest.raises(PodFailed):
            await asked(client)
        assert await asked(client, pieces(b"{", b"}")) == b"{}"
        assert len(pod.connections) == 2


async def test_a_request_is_sent_again_once() -> None:
    """A pod that dies of a request must not be given it for ever."""

    async def dies(connection: Connection) -> None:
        await connection.request()

    async with raw_pod(dies) as pod, client_of(pod.url) as client:
        with pytest.raises(PodFailed):
            await asked(client, b"{}")
        assert len(pod.connections) == 2


async def test_a_body_that_cannot_be_made_again_is_not_sent_again() -> None:
    """It would arrive without its beginning."""
    async with raw_pod(serves_one_then(ENDS["closed"]), serves) as pod, client_of(pod.url) as client:
        await asked(client)
        with pytest.raises(PodFailed):
            await asked(client, pieces(b"{", b"}"))
        assert len(pod.connections) == 1


async def test_connections_are_used_again() -> None:
    """Answers that were read to their end leave one connection, and so do errors in a row."""
    async with scripted_pod({"/x": json_answer(b"{}")}) as pod, client_of(pod.url) as client:
        for _ in range(20):
            await asked(client)
        assert pod.connections == 1


async def test_an_idle_connection_is_closed_before_the_pod_would() -> None:
    """Kept for `pod_keepalive_s`, then closed from our side."""
    async with scripted_pod({"/x": json_answer(b"{}")}) as pod, client_of(pod.url, pod_keepalive_s=0.05) as client:
        await asked(client)
        await eventually(lambda: pod.connections == 0)


async def test_leaving_early_closes_the_connection() -> None:
    """It is how a pod learns that nobody waits: between chunks, and before the first."""
    async with scripted_pod({"/x": streamed(b"{", Does.HANG)}) as pod, client_of(pod.url) as client:
        async with client.request("POST", "/x", headers={}, timeout_s=15):
            pass
        await eventually(lambda: pod.left == ["/x"])
        async with client.request("POST", "/x", headers={}, timeout_s=15) as answer:
            async for chunk in answer.chunks():
                assert chunk == b"{"
                break
        await eventually(lambda: pod.left == ["/x"] * 2 and pod.connections == 0)


async def test_leaving_while_the_body_is_sent_closes_the_connection() -> None:
    """Also when the pod has begun to answer, and the body waits for something that does not come."""
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await never.wait()

    async with scripted_pod({"/x": streamed(b"{", Does.HANG)}) as pod, client_of(pod.url) as client:
        pod.unread.add("/x")

        async def leave() -> None:
            async with client.request("POST", "/x", headers={}, body=endless(), timeout_s=15):
                pass

        await soon(leave())
        await eventually(lambda: pod.left == ["/x"] and pod.connections == 0)


@pytest.mark.parametrize("body", [b"{}", None], ids=["waiting for the head", "sending the body"])
async def test_cancelling_closes_the_connection(body: bytes | None) -> None:
    """Cancelling reaches the pod at whatever point it comes."""
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"begun"
        await never.wait()

    async with scripted_pod({"/x": streamed(Does.HANG)}) as pod, client_of(pod.url) as client:
        task = asyncio.create_task(asked(client, endless() if body is None else body))
        await eventually(lambda: pod.begun == ["/x"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: pod.left == ["/x"] and pod.connections == 0)


async def test_nothing_is_left_over() -> None:
    """After failures of each kind no task is left, and no connection but the one that is kept for the next request."""
    cases = [
        json_answer(b"no", status=500),
        json_answer(b"no", status=400),
        streamed(b"{", Does.CUT),
        json_answer(b"{}"),
    ]
    async with scripted_pod() as pod, client_of(pod.url) as client:
        for answer in cases * 5:
            pod.answers["/x"] = answer
            await asyncio.gather(asked(client), asked(client, pieces(b"x")), return_exceptions=True)
        await eventually(lambda: pod.connections <= 2)
    await eventually(lambda: len(asyncio.all_tasks()) == 1)


@pytest.mark.parametrize(("answer", "healthy"), [(200, True), (204, True), (503, False), (404, False), (307, False)])
async def test_health_is_what_the_pod_says(answer: int, healthy: bool) -> None:
    """A success is health, anything else is not."""

    async def says(connection: Connection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % answer)

    async with raw_pod(says) as pod, client_of(pod.url) as client:
        assert await client.healthy(5) is healthy
