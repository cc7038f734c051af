"""The answer to a derender request: written while the request's body still comes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from rendergen.vllm_plugin.derender.body import RequestBody
from rendergen.vllm_plugin.derender.context import Context, read_context
from rendergen.vllm_plugin.derender.dialects import Dialect
from rendergen.vllm_plugin.derender.failures import AnsweredError, CallerLeft, Failure, NotReady
from rendergen.vllm_plugin.derender.generation import Generation
from rendergen.vllm_plugin.derender.limits import DerenderLimits
from rendergen.vllm_plugin.derender.patience import Patience
from rendergen.vllm_plugin.derender.servings import Servings
from rendergen.vllm_plugin.errors import BadPayload, Refusal

_log = logging.getLogger(__name__)

# The first such member of an event is the answer's own: no string has a quote that is not escaped.
_CREATED = re.compile(r'("created(?:_at)?":)\d+')

_STREAM_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"),)

_ERROR_EVENT = 'data: {"error"'

# A context that is longer is read off the event loop.
_FEW_BYTES = 64 * 1024

# How long the rest of a body is read after the answer's last byte.
_LINGER_S = 1.0


class DerenderAnswer(Response):
    """Reads the body and writes the answer in turns, in one task.

    The next bytes of the body are asked for when all that can be said of those that came has been taken by the caller:
    so each side is held up by the other, and a caller that leaves is noticed at the next turn. (Starlette's
    StreamingResponse reads the body too, to learn of that, and throws it away.)
    """

    media_type = "text/event-stream"

    def __init__(self, dialect: Dialect, servings: Servings | None, limits: DerenderLimits) -> None:
        super().__init__()
        self._dialect = dialect
        self._servings = servings
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        async with Patience(self._limits.silence_s) as patience:
            writer = _Writer(send, patience)
            body = RequestBody(receive, patience, writer.flush)
            try:
                try:
                    await self._answer(body, writer)
                except (Refusal, AnsweredError) as failure:
                    await self._fail(failure, writer)
                await body.drain(_LINGER_S)
                await writer.end()
            except CallerLeft:
                return

    async def _answer(self, body: RequestBody, writer: _Writer) -> None:
        answer, generation = await self._start(body)
        if isinstance(answer, AsyncGenerator):
            writer.may_start = lambda: generation.began
            await self._stream(answer, generation, writer)
        else:
            await writer.document(self._dialect.document(answer))

    async def _start(self, body: RequestBody) -> tuple[Any, Generation]:
        """What vLLM's serving layer makes of the request. Raises what failed."""
        if self._servings is None:
            raise NotReady("nothing can be derendered: the server is starting, or its model generates nothing")
        servings = self._servings
        line = await body.line(self._limits.context_bytes)
        if len(line) > _FEW_BYTES:
            context, request = await asyncio.to_thread(self._read, line, servings.max_model_len)
        else:
            context, request = self._read(line, servings.max_model_len)
        generation = Generation(body, context, servings.tokenizer, servings.max_model_len, self._limits)
        try:
            answer = await self._dialect.answer(servings, request, context, generation)
        except (Refusal, AnsweredError, CallerLeft):
            raise
        except Exception as error:
            raise _failure(generation, error) from error
        if isinstance(answer, ErrorResponse):
            raise _failure(generation, answer)
        if context.created is not None and not isinstance(answer, AsyncGenerator):
            _set_created(answer, context.created)
        return answer, generation

    def _read(self, line: bytes, max_model_len: int) -> tuple[Context, Any]:
        context = read_context(line, max_model_len)
        return context, _validated(self._dialect.request_type, context)

    async def _stream(self, answer: AsyncGenerator[Any, None], generation: Generation, writer: _Writer) -> None:
        created = generation.context.created
        async with aclosing(answer):
            try:
                async for piece in self._dialect.pieces(answer):
                    if generation.failure is not None:
                        break  # the serving layer's own words for it
                    if not writer.started and piece.startswith(_ERROR_EVENT):
                        raise _said(piece)
                    writer.write(piece if created is None else _CREATED.sub(rf"\g<1>{created}", piece, count=1))
            except (AnsweredError, CallerLeft, asyncio.CancelledError):
                raise
            except Exception as error:
                raise _failure(generation, error) from error
        if generation.failure is not None:
            raise generation.failure
        writer.may_start = lambda: True
        await writer.flush()

    async def _fail(self, failure: Refusal | AnsweredError, writer: _Writer) -> None:
        if writer.started:
            writer.write(self._dialect.error_event(failure.body(), writer.pieces))
            await writer.flush()
        else:
            writer.drop()
            await writer.document(self._dialect.error(failure.body()), failure.status)


class _Writer:
    """Gathers the pieces of a stream, and sends those that there are before more of the body is waited for."""

    def __init__(self, send: Send, patience: Patience) -> None:
        self.started = False
        """Whether the head has been sent, after which there is no other status."""
        self.pieces = 0
        self.may_start: Callable[[], bool] = lambda: True
        """Whether the head may be sent yet."""
        self._send = send
        self._patience = patience
        self._gathered: list[str] = []

    def write(self, piece: str) -> None:
        """Add a piece: one event, or several whole ones."""
        self._gathered.append(piece)
        self.pieces += 1

    def drop(self) -> None:
        """Forget what was not sent."""
        self._gathered.clear()

    async def flush(self) -> None:
        """Send what was gathered. Raises CallerLeft when it is not taken for too long."""
        if self._gathered and (self.started or self.may_start()):
            data = "".join(self._gathered).encode("utf-8", "surrogatepass")
            self._gathered.clear()
            await self._send_all(200, _STREAM_HEADERS, data)

    async def document(self, document: Any, status: int = 200) -> None:
        """Send JSON as vLLM writes it. Raises CallerLeft, as `flush` does."""
        response = JSONResponse(document)
        await self._send_all(status, response.raw_headers, bytes(response.body))

    async def end(self) -> None:
        """End what was sent."""
        if not self.started:
            return
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, status: int, headers: Sequence[tuple[bytes, bytes]], data: bytes) -> None:
        try:
            if not self.started:
                self.started = True
                start = {"type": "http.response.start", "status": status, "headers": list(headers)}
                await self._patience.wait(self._send(start))
            await self._patience.wait(self._send({"type": "http.response.body", "body": data, "more_body": True}))
        except TimeoutError as error:
            raise CallerLeft from error


def _said(piece: str) -> AnsweredError:
    """The error that the serving layer says in a stream, of which nothing has been sent: it can have its status."""
    body = json.loads(piece.removeprefix("data:").split("\n", 1)[0])
    return AnsweredError(body["error"]["code"], body)


def _validated(request_type: Any, context: Context) -> Any:
    try:
        return request_type.model_validate(context.caller_request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadPayload(f"the caller's request: {where}: {first['msg']}", param=where or None) from error


def _failure(generation: Generation, what: Exception | ErrorResponse) -> Failure:
    """What to answer when the serving layer raised, or refused."""
    if generation.failure is not None:
        return generation.failure
    if isinstance(what, Exception):
        refusal = create_error_response(what)
        if refusal.error.code >= 500:
            _log.exception("derender failed", exc_info=what)
    else:
        refusal = what
    return AnsweredError(refusal.error.code, refusal.model_dump())


def _set_created(answer: Any, created: int) -> None:
    for name in ("created", "created_at"):
        if hasattr(answer, name):
            setattr(answer, name, created)
