"""Who may call the router, and as whom it calls the pods."""

from __future__ import annotations

import asyncio
import logging
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from rendergen.service.api_keys import ApiKeys
from rendergen.service.app import KEY_NAME, Handler
from rendergen.service.errors import PodFailed, Unauthorized
from rendergen.service.hosts import is_loopback
from rendergen.service.pods import HEALTH
from rendergen.service.watched_file import BadFile, WatchedFile
from router.settings import RouterSettings

log = logging.getLogger(__name__)

AUTHORIZATION = "Authorization"
# What Anthropic's clients send.
API_KEY = "x-api-key"

# Probes, metrics and the API's description: nothing of these is anyone's in particular.
OPEN_ROUTES = frozenset({"/livez", "/readyz", "/health", "/metrics", "/openapi.json"})

_MISSING = "An API key is needed: send it as `Authorization: Bearer KEY`, or as `x-api-key: KEY`."
_WRONG = "This API key is not valid. See that the whole key is sent, and no other beside it."
_POD_REFUSES = "A pod does not accept this server's own key."

_POD_KEY = re.compile(rb"[!-~]{1,4096}")


class Gate:
    """Lets callers in, and stands before the pods.

    With a file of keys, a caller needs one of them, and nothing of what the caller is known by goes on to pods.
    Without, everyone is let in, and the caller's ``Authorization`` goes on. With a file that holds the pods' key, that
    is sent to them in any case.

    Args:
        keys: the callers' keys; None to let everyone in.
        pod_key: the key that pods want; None if they want none, or the caller's.
    """

    def __init__(self, keys: WatchedFile[ApiKeys] | None, pod_key: WatchedFile[str] | None) -> None:
        self._keys = keys
        self._pod_key = pod_key
        self._refusing: set[URL] = set()

    @classmethod
    def open(cls, settings: RouterSettings) -> Self:
        """The gate of a router with ``settings``. Reads the files: only at start.

        Raises:
            BadFile: a file cannot be used.
        """
        keys = pod_key = None
        if settings.api_keys_file is not None:
            writable = stat.S_IWGRP | stat.S_IWOTH
            keys = WatchedFile("--api-keys-file", settings.api_keys_file, ApiKeys.read, unsafe_mode=writable)
        if settings.pod_api_key_file is not None:
            readable = stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH
            pod_key = WatchedFile("--pod-api-key-file", settings.pod_api_key_file, read_pod_key, unsafe_mode=readable)
        if keys is not None:
            log.info("callers need an API key", extra={"keys": len(keys.value)})
        elif not is_loopback(settings.host):
            log.warning("callers need no API key: whoever can reach this port is served")
        return cls(keys, pod_key)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow changes of the files for as long as the context lasts."""
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(file.watch()) for file in (self._keys, self._pod_key) if file is not None]
            try:
                yield
            finally:
                for watch in watches:
                    watch.cancel()

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The application's middleware: refuses who has no key before a byte of the body is read.

        Raises:
            Unauthorized: there is no key, or it is not a good one.
        """
        if self._keys is not None and not _is_open(request):
            request[KEY_NAME] = caller_of(request.headers, self._keys.value)
        return await handler(request)

    async def to_pods(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """The middleware of the pods' HTTP client: every request to a pod passes here, probes too.

        Raises:
            PodFailed: the pod wants another key. That is not the caller's fault, whose key is not the one it was sent.
        """
        if self._pod_key is not None:
            request.headers[AUTHORIZATION] = f"Bearer {self._pod_key.value}"
        elif self._keys is not None:
            request.headers.popall(AUTHORIZATION, None)
        else:
            return await handler(request)
        pod = request.url.origin()
        response = await handler(request)
        if response.status == Unauthorized.status:
            response.close()
            if pod not in self._refusing:  # once: a probe comes every second
                log.error("a pod does not accept the router's key; see --pod-api-key-file", extra={"pod": str(pod)})
            self._refusing.add(pod)
            raise PodFailed(_POD_REFUSES)
        if request.url.path != HEALTH:  # which needs no key
            self._refusing.discard(pod)
        return response


def caller_of(headers: CIMultiDictProxy[str], keys: ApiKeys) -> str:
    """The name of the key that a request came with.

    The same key twice is one, as Anthropic's clients may send it. Two different ones are refused: which of them counts
    is nothing to guess at.

    Raises:
        Unauthorized: it came with none, or not with a good one.
    """
    sent = {key for value in headers.getall(AUTHORIZATION, ()) if (key := _bearer(value))}
    sent |= {key for value in headers.getall(API_KEY, ()) if (key := value.strip())}
    if not sent:
        raise Unauthorized(_MISSING)
    name = keys.name_of(sent.pop()) if len(sent) == 1 else None
    if name is None:
        raise Unauthorized(_WRONG)
    return name


def read_pod_key(content: bytes) -> str:
    """The one key in a file with ``content``.

    Raises:
        BadFile: it does not hold just that.
    """
    key = content.strip()
    if not _POD_KEY.fullmatch(key):
        raise BadFile("it must hold one key and nothing else: ASCII characters, no space")
    return key.decode("ascii")


def _is_open(request: web.Request) -> bool:
    # Of the route that will answer, not of the path: the two cannot be made to differ.
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in OPEN_ROUTES


def _bearer(value: str) -> str:
    """The key in an ``Authorization`` header's ``value``; empty if it is something else."""
    scheme, _, key = value.strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
