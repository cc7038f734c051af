"""The peer that anyone would write: a streaming proxy in aiohttp.

`python -m benchmarks.plain_proxy <backend URL>` listens on a free port of the loopback and logs where.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop
from aiohttp import ClientSession, TCPConnector, web


async def serve(backend: str) -> None:
    """Serve until the process is ended."""
    session = ClientSession(connector=TCPConnector(limit=0))

    async def proxy(request: web.Request) -> web.StreamResponse:
        headers = {
            name: request.headers[name] for name in ("Content-Type", "Content-Length") if name in request.headers
        }
        body = request.content.iter_any() if request.body_exists else None
        async with session.request(request.method, backend + request.path_qs, headers=headers, data=body) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            response.content_length = answer.content_length
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    print(json.dumps({"message": "listening", "url": f"http://{host}:{port}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
