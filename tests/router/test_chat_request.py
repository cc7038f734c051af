from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from rendergen.service.bodies import RequestBody
from router.chat_request import ChatRequest, read_chat_request
from tests.support.clients import pieces
from tests.support.service import QUICK, PlainSettings, handler_served


@dataclass(slots=True)
class Reader:
    """A service that reads chat requests, and the last one that it has read."""

    caller: aiohttp.ClientSession
    url: str = ""
    read: ChatRequest | None = None

    async def of(self, *parts: bytes) -> ChatRequest:
        """What is read from a body that comes in those parts."""
        async with self.caller.post(self.url, data=pieces(*parts)) as answer:
            assert answer.status == 200, await answer.text()
        assert self.read is not None
        return self.read

    async def refusal(self, body: bytes) -> tuple[int, str | None]:
        """Status and `param` of the refusal of ``body``."""
        async with self.caller.post(self.url, data=pieces(body)) as answer:
            assert answer.status != 200
            error = (await answer.json())["error"]
            assert error["message"]
            return answer.status, error["param"]


@pytest.fixture
async def reader(caller: aiohttp.ClientSession) -> AsyncIterator[Reader]:
    settings = PlainSettings(**QUICK)
    found = Reader(caller)

    async def read(request: web.Request) -> web.Response:
        found.read = await read_chat_request(RequestBody(request, settings), {"A": "b"})
        return web.Response()

    async with handler_served(read, settings) as url:
        found.url = url + "/path"
        yield found


ORDERS = [
    b'{"model":"m","messages":[],"stream":false,"sampling_params":{"seed":1}}',
    b'{"sampling_params" : {"seed": 1} ,"stream":null, "messages":[{}],"model" : "m" }',
    b' \n{"messages":[],"sampling_params":{"seed":1},"other":{"model":"x","stream":true},"model":"m"}\r\n',
    rb'{"m\u006fdel":"m","\u006dessages":[],"sampling_p\u0061rams":{"se\u0065d":1}}',
]


@pytest.mark.parametrize("body", ORDERS)
async def test_members_are_found_wherever_they_are(body: bytes, reader: Reader) -> None:
    """In any order, with any whitespace, written with escapes, and only at the top level."""
    chat = await reader.of(body)
    assert b"".join(chat.body) == body
    assert chat.model == b'"m"'
    assert chat.sampling_overrides.keys() == {"seed"}
    assert chat.headers == {"A": "b"}


async def test_a_body_may_come_one_byte_at_a_time(reader: Reader) -> None:
    """Whatever ends between two reads."""
    for body in ORDERS:
        chat = await reader.of(*(body[at : at + 1] for at in range(len(body))))
        assert b"".join(chat.body) == body
        assert (chat.model, dict(chat.sampling_overrides)["seed"].strip()) == (b'"m"', b"1")


async def test_a_large_body_is_not_joined(reader: Reader) -> None:
    """8 MB of picture in many pieces, with the members after it."""
    body = b'{"messages":[{"content":"' + b"A" * 8_000_000 + b'"}],"model":"m","sampling_params":{"seed":1}}'
    chat = await reader.of(body)
    assert b"".join(chat.body) == body
    assert max(map(len, chat.body)) < 1_000_000
    assert chat.model == b'"m"'


async def test_overrides_are_raw_values_by_name(reader: Reader) -> None:
    """A number keeps its digits."""
    chat = await reader.of(b'{"model":"m","messages":[],"sampling_params":{"temperature":0.70,"bad_words":["a" ,"b"]}}')
    assert dict(chat.sampling_overrides) == {"temperature": b"0.70", "bad_words": b'["a" ,"b"]'}


@pytest.mark.parametrize("sampling_params", [b"", b',"sampling_params":null', b',"sampling_params":{}'])
async def test_there_may_be_no_overrides(sampling_params: bytes, reader: Reader) -> None:
    """Absent, null and empty are the same."""
    assert not (await reader.of(b'{"model":"m","messages":[]%b}' % sampling_params)).sampling_overrides


@pytest.mark.parametrize("stop", [b"null", b"[]", b"[ \n]", b'""'])
async def test_no_stop_strings_are_none(stop: bytes, reader: Reader) -> None:
    """Clients send these for none."""
    assert await reader.of(b'{"model":"m","messages":[],"stop":%b,"sampling_params":{"stop":%b}}' % (stop, stop))


REFUSED = {
    "no model": (b'{"messages":[]}', 400, "model"),
    "no messages": (b'{"model":"m"}', 400, "messages"),
    "neither": (b"{}", 400, "model"),
    "model is null": (b'{"model":null,"messages":[]}', 400, "model"),
    "model is a number": (b'{"model":1,"messages":[]}', 400, "model"),
    "model is a list": (b'{"model":["m"],"messages":[]}', 400, "model"),
    "model twice": (b'{"model":"m","messages":[],"model":"n"}', 400, None),
    "messages twice": (b'{"model":"m","messages":[],"messages":[]}', 400, None),
    "twice, once escaped": (rb'{"model":"m","messages":[],"m\u006fdel":"n"}', 400, None),
    "override twice": (b'{"model":"m","messages":[],"sampling_params":{"n":1,"n":2}}', 400, "sampling_params"),
    "overrides are a list": (b'{"model":"m","messages":[],"sampling_params":[1]}', 400, "sampling_params"),
    "overrides are text": (b'{"model":"m","messages":[],"sampling_params":"{}"}', 400, "sampling_params"),
    "streamed": (b'{"model":"m","messages":[],"stream":true}', 501, "stream"),
    "streamed, somehow": (b'{"model":"m","messages":[],"stream":1}', 501, "stream"),
    "a stop string": (b'{"model":"m","messages":[],"stop":"END"}', 501, "stop"),
    "a space": (b'{"model":"m","messages":[],"stop":" "}', 501, "stop"),
    "stop strings": (b'{"model":"m","messages":[],"stop":[ "END" ]}', 501, "stop"),
    "stop in an override": (b'{"model":"m","messages":[],"sampling_params":{"stop":["END"]}}', 501, "stop"),
    "stop beside none": (b'{"model":"m","messages":[],"stop":null,"sampling_params":{"stop":"E"}}', 501, "stop"),
    "nothing": (b"", 400, None),
    "a list": (b"[]", 400, None),
    "no json": (b"hello", 400, None),
    "half": (b'{"model":"m","messages":[', 400, None),
    "two": (b'{"model":"m","messages":[]}{}', 400, None),
    "a byte order mark": (b'\xef\xbb\xbf{"model":"m","messages":[]}', 400, None),
    "utf-16": ('{"model":"m","messages":[]}'.encode("utf-16"), 400, None),
    "very deep": (b'{"model":"m","messages":' + b"[" * 100_000, 400, None),
    "a huge override": (b'{"model":"m","messages":[],"sampling_params":{"a":"' + b"x" * 5_000_000 + b'"}}', 400, None),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_used_is_refused(case: tuple[bytes, int, str | None], reader: Reader) -> None:
    """400 for what is wrong, 501 for what is not built, with the member at fault where there is one."""
    body, status, param = case
    assert await reader.refusal(body) == (status, param)
