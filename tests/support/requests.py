"""Requests as the router has read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rendergen.payload import Document
from router.api_request import ApiRequest
from router.apis import CHAT, Api
from router.media import Media


def api_request(api: Api = CHAT, *, overrides: Mapping[str, bytes] | None = None, **members: Any) -> ApiRequest:
    """A request to ``api`` with those members, and with ``overrides`` in its sampling params."""
    conversation: dict[str, Any] = {"messages": []} if api is CHAT else {"prompt": "p"}
    body = json.dumps({"model": "m", **conversation, **members}).encode()
    return ApiRequest(
        api=api, headers={}, document=Document.of(body), media=Media(), model="m", sampling_overrides=overrides or {}
    )
