"""Requests as the router reads them, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from rendergen.service.bodies import RequestBody
from rendergen.service.errors import TooLarge
from router.api_request import MAX_MEMBER_BYTES, ApiRequest, read_api_request
from router.apis import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Api
from tests.support.clients import pieces
from tests.support.service import QUICK, PlainSettings, handler_served


@dataclass(slots=True)
class Reader:
    """A service that reads requests, and the last one that it has read."""

    caller: aiohttp.ClientSession
    url: str = ""
    read: ApiRequest | None = None
    api: Api = CHAT
    domains: Sequence[str] = field(default_factory=list)

    async def of(self, *parts: bytes, api: Api = CHAT, domains: Sequence[str] = ()) -> ApiRequest:
        """What is read from a body that comes in those parts."""
        self.api, self.domains = api, domains
        async with self.caller.post(self.url, data=pieces(*parts)) as answer:
            assert answer.status == 200, await answer.text()
        assert self.read is not None
        return self.read

    async def refusal(self, body: bytes, api: Api = CHAT, domains: Sequence[str] = ()) -> tuple[int, str | None]:
        """Status and `param` of the refusal of ``body``."""
        self.api, self.domains = api, domains
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
        found.read = await read_api_request(RequestBody(request, settings), {"A": "b"}, found.api, found.domains)
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
    for parts in ([body], [body[at : at + 1] for at in range(len(body))]):
        request = await reader.of(*parts)
        assert b"".join(request.pieces) == body
        assert (request.api, request.headers, request.model) == (CHAT, {"A": "b"}, "m")
        assert request.sampling_overrides.keys() == {"seed"}
        assert not request.streams
        span = request.spans["messages"]
        assert json.loads(body[span.start : span.end]) in ([], [{}])


async def test_a_large_body_is_not_joined(reader: Reader) -> None:
    """8 MB of picture in many pieces, with the members after it."""
    body = b'{"messages":[{"content":"' + b"A" * 8_000_000 + b'"}],"model":"m","sampling_params":{"seed":1}}'
    request = await reader.of(body)
    assert b"".join(request.pieces) == body
    assert max(map(len, request.pieces)) < 1_000_000
    assert request.model == "m"


@pytest.mark.parametrize(
    ("body", "model"),
    [(b"{}", None), (b'{"model":null}', None), (b'{"model":""}', ""), (rb'{"model":"a\"\u00e9\/"}', 'a"é/')],
)
async def test_model(body: bytes, model: str | None, reader: Reader) -> None:
    """Decoded; null is absent."""
    assert (await reader.of(body)).model == model


@pytest.mark.parametrize(
    ("value", "streams"),
    [
        *[(value, True) for value in (b"true", b"1", b"1.0", b'"true"', b'"YES"', b'"on"', rb'"\u0031"')],
        *[(value, False) for value in (b"false", b"null", b"0", b'"false"', b'"no"', b'""', b"[]", b"2", b'"x"')],
        (b"1." + b"0" * 100, False),  # longer than any spelling of true that is meant
        (b" true", True),
        (b"NaN", False),
    ],
)
async def test_streams_as_vllm_has_it(value: bytes, streams: bool, reader: Reader) -> None:
    """It takes more for true than true."""
    assert (await reader.of(b'{"stream":%b}' % value)).streams is streams


async def test_raw_members(reader: Reader) -> None:
    """As they were written, without the whitespace around; null is told from absent by `raw` alone."""
    request = await reader.of(b'{"a": [1, 2 ] ,"b":null,"c":"' + b"x" * 40_000 + b'"}')
    assert (request.raw("a"), request.raw("b"), request.raw("d")) == (b"[1, 2 ]", b"null", None)
    assert (request.given("a"), request.given("b"), request.given("d")) == (b"[1, 2 ]", None, None)
    assert request.raw("c") == b'"' + b"x" * 40_000 + b'"'


async def test_raw_members_are_bounded(reader: Reader) -> None:
    request = await reader.of(b'{"a":"' + b"x" * (MAX_MEMBER_BYTES - 1) + b'"}')
    with pytest.raises(TooLarge) as raised:
        request.raw("a")
    assert raised.value.param == "a"


async def test_overrides_are_raw_values_by_name(reader: Reader) -> None:
    """A number keeps its digits."""
    large = b'"' + b"g" * 50_000 + b'"'
    body = b'{"sampling_params":{"temperature":0.70,"bad_words":["a" ,"b"],"grammar":%b}}'
    for grammar in (b"1", large):
        request = await reader.of(body % grammar)
        expected = {"temperature": b"0.70", "bad_words": b'["a" ,"b"]', "grammar": grammar}
        assert dict(request.sampling_overrides) == expected


@pytest.mark.parametrize("sampling_params", [b"", b'"sampling_params":null', b'"sampling_params":{}'])
async def test_there_may_be_no_overrides(sampling_params: bytes, reader: Reader) -> None:
    """Absent, null and empty are the same."""
    assert not (await reader.of(b"{%b}" % sampling_params)).sampling_overrides


async def test_body_with_other_values(reader: Reader) -> None:
    """Set where they stand or appended; all else stays."""
    request = await reader.of(b'{"a" : 1 , "logprobs":5,"b":2 }')
    assert b"".join(request.body_with({"logprobs": b"6"})) == b'{"a" : 1 , "logprobs":6,"b":2 }'
    assert b"".join(request.body_with({"new": b"[]"})) == b'{"a" : 1 , "logprobs":5,"b":2 ,"new":[]}'
    assert b"".join((await reader.of(b"{}")).body_with({"new": b"1"})) == b'{"new":1}'


PICTURE = b"data:image/png;base64," + b"A" * 300_000
FORMS = {
    "chat": (CHAT, b'{"messages":[{"content":[{"type":"image_url","image_url":{"url":"%b"}}]}]}'),
    "messages": (MESSAGES, b'{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"%b"}}]}]}'),
    "responses": (RESPONSES, b'{"input":[{"role":"user","content":[{"type":"input_image","image_url":"%b"}]}]}'),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_media_are_found_and_blanked(form: tuple[Api, bytes], reader: Reader) -> None:
    """In each API's form, small and large, however the body comes."""
    api, body = form
    for url, size in ((b"data:,x", 7), (PICTURE, 10_000), (PICTURE, 10**6)):
        whole = body % url
        request = await reader.of(*(whole[at : at + size] for at in range(0, len(whole), size)), api=api)
        assert (request.media.inline, request.media.remote) == (1, 0)
        [span] = request.media.spans
        assert whole[span.start : span.end] == url
        assert b"".join(request.blanked()) == body % b""
        assert b"".join(request.pieces) == whole


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_media_from_elsewhere_are_refused(form: tuple[Api, bytes], reader: Reader) -> None:
    """With the conversation as what is at fault, unless their host is allowed."""
    api, body = form
    assert await reader.refusal(body % b"http://a.b/c", api) == (400, api.conversation)
    assert await reader.refusal(body % b"http://a.b/c", api, ["c.d"]) == (400, api.conversation)
    assert await reader.refusal(body % b"http://c.d@a.b/c", api, ["c.d"]) == (400, api.conversation)
    assert await reader.refusal(body % b"file:///etc/passwd", api, [""]) == (400, api.conversation)
    request = await reader.of(body % b"http://A.b/c", api=api, domains=["a.b"])
    assert (request.media.inline, request.media.remote) == (0, 1)
    assert b"".join(request.blanked()) == body % b""


async def test_a_key_with_escapes_hides_no_medium(reader: Reader) -> None:
    """Not in a small body, at which only a quick look is taken, either."""
    body = rb'{"messages":[{"content":[{"\u0069mage_url":"http://a.b"}]}]}'
    assert await reader.refusal(body) == (400, "messages")
    assert await reader.refusal(rb'{"messag\u0065s":[{"content":[{"image_url":"http://a.b"}]}]}') == (400, "messages")


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":"see http://a.b"}',
        b'{"messages":[{"content":"image_url\\": http://a.b"}]}',
        b'{"messages":[{"tool_calls":[{"function":{"arguments":{"image_url":"http://a.b"}}}]}]}',
        b'{"tools":[{"content":[{"image_url":"http://a.b"}]}],"messages":[]}',
        b'{"messages":[],"input":[{"content":[{"image_url":"http://a.b"}]}]}',
        b'{"other":{"messages":[{"content":[{"image_url":"http://a.b"}]}]}}',
    ],
)
async def test_other_urls_are_no_media(body: bytes, reader: Reader) -> None:
    """In text, in tools and their calls, and in members that hold no conversation."""
    assert not (await reader.of(body)).media.spans


async def test_completions_have_no_media(reader: Reader) -> None:
    """No member of theirs does."""
    body = b'{"prompt":"x","messages":[{"content":[{"image_url":"http://a.b"}]}],"":[{"image_url":"http://a.b"}]}'
    request = await reader.of(body, api=COMPLETIONS)
    assert not request.media.spans
    assert b"".join(request.blanked()) == body


async def test_blanked_is_one_line(reader: Reader) -> None:
    """And the same to `json`, in any size."""
    for padding in ("", "x" * 100_000):
        document = {"model": "m", "messages": [{"content": [{"text": "a\nb" + padding}, {"image_url": "data:,x"}]}]}
        body = json.dumps(document, indent=1).replace("\n", "\r\n").encode()
        blanked = b"".join((await reader.of(body)).blanked())
        assert not set(blanked) & set(b"\r\n")
        document["messages"] = [{"content": [{"text": "a\nb" + padding}, {"image_url": ""}]}]
        assert json.loads(blanked) == document


async def test_many_media(reader: Reader) -> None:
    """There is a bound, which is named."""
    part = b'{"image_url":"data:"},'
    many = b'{"messages":[{"content":[%b{}]}]}'
    assert (await reader.of(many % (part * 10_000))).media.inline == 10_000
    assert await reader.refusal(many % (part * 10_001)) == (400, "messages")


REFUSED = {
    "model is a number": (b'{"model":1,"messages":[]}', 400, "model"),
    "model is a list": (b'{"model":["m"],"messages":[]}', 400, "model"),
    "model is no string": (b'{"model":"\\x","messages":[]}', 400, "model"),
    "model is huge": (b'{"model":"' + b"m" * 100_000 + b'"}', 413, "model"),
    "model twice": (b'{"model":"m","messages":[],"model":"n"}', 400, None),
    "messages twice": (b'{"model":"m","messages":[],"messages":[]}', 400, None),
    "large, twice": (b'{"messages":["' + b"x" * 100_000 + b'"],"messages":[]}', 400, None),
    "twice, once escaped": (rb'{"model":"m","messages":[],"m\u006fdel":"n"}', 400, None),
    "override twice": (b'{"sampling_params":{"n":1,"n":2}}', 400, "sampling_params"),
    "choices among the overrides": (b'{"sampling_params":{"seed":1,"n":2}}', 400, "sampling_params"),
    "overrides are a list": (b'{"sampling_params":[1]}', 400, "sampling_params"),
    "overrides are a long list": (b'{"sampling_params":[' + b"1," * 20_000 + b"1]}", 400, "sampling_params"),
    "overrides are text": (b'{"sampling_params":"{}"}', 400, "sampling_params"),
    "overrides are huge": (b'{"sampling_params":{"a":"' + b"x" * 5_000_000 + b'"}}', 413, "sampling_params"),
    "nothing": (b"", 400, None),
    "a list": (b"[]", 400, None),
    "no json": (b"hello", 400, None),
    "half": (b'{"model":"m","messages":[', 400, None),
    "half of a picture": (b'{"messages":[{"image_url":"data:' + b"A" * 100_000, 400, None),
    "two": (b'{"model":"m","messages":[]}{}', 400, None),
    "a byte order mark": (b'\xef\xbb\xbf{"model":"m","messages":[]}', 400, None),
    "utf-16": ('{"model":"m","messages":[]}'.encode("utf-16"), 400, None),
    "utf-16 without its mark": ('{"model":"m","messages":[]}'.encode("utf-16-le"), 400, None),
    "very deep": (b'{"model":"m","messages":' + b"[" * 100_000, 400, None),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_used_is_refused(case: tuple[bytes, int, str | None], reader: Reader) -> None:
    """With the member at fault where there is one."""
    body, status, param = case
    assert await reader.refusal(body) == (status, param)


@pytest.mark.parametrize("body", [b"{}", b'{"messages":5}', b'{"messages":[{"image_url"}]}', b'{"messages":[tru]}'])
async def test_the_rest_is_left_to_vllm(body: bytes, reader: Reader) -> None:
    """It says what is missing, or malformed inside, in words of its own."""
    assert b"".join((await reader.of(body)).pieces) == body


class Held:
    """A body that is all there: reading it never waits."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts

    async def chunks(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part


@pytest.mark.parametrize("value", [b"[],", b'"",', b'{"content":[]},', b'{"a":{"b":[1]}},'])
async def test_others_run_while_a_large_body_is_read(value: bytes) -> None:
    """However dense it is, and though nothing of it has to be waited for."""
    body = b'{"messages":[' + value * (2_000_000 // len(value)) + b"1]}"
    parts = [body[at : at + 262_144] for at in range(0, len(body), 262_144)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await read_api_request(Held(*parts), {}, CHAT, ())  # type: ignore[arg-type]
    counting.cancel()
    assert turns > len(parts)
