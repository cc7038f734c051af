"""A pod's error answers, classed: whose fault was it, and what may the caller be told?

vLLM answers 500 for much that is the caller's fault, and its 401 has a plain string where others have an object.
"""

from __future__ import annotations

import json
import re

from rendergen.service.errors import BadRequest, DeadlineExceeded, PodFailed, PodRefusal, ServiceError, Unavailable

# What a pod says of the caller's request, or of its load, is the caller's to know.
_CALLERS = frozenset({400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 429})
# These come from a rendergen service in front of vLLM, or from our plugin within it, which have classed it already.
_CLASSED = frozenset({502, 503, 504})
_CLASSED_TYPES = frozenset(
    {PodFailed.type, Unavailable.type, DeadlineExceeded.type, "DeadlineExceededError"}  # the last is the plugin's
)
TOO_MANY_REQUESTS = 429
# `error.type` where the pod gives none; vLLM's 401 is a plain string.
_TYPES = {
    401: "UnauthorizedError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    412: "PreconditionFailedError",
    429: "RateLimitError",
}
# Statuses with which vLLM answers what `_CALLERS_FAULT` lists.
_UNRELIABLE = frozenset({400, 500, 501})
_AS_BAD_REQUEST = frozenset({415, 422})

_FETCH = "An image could not be fetched from its URL. Send it as a data: URL, or see that the URL can be reached."
_DECODE = "An image could not be decoded: {message}. Send it as a valid PNG, JPEG or WebP file."

# What vLLM 0.32 says of requests that are at fault, where its status or its words are not for the caller: it answers
# 500 or 501 for them, or names its own configuration. By the beginning of its message; what the caller is told instead.
_CALLERS_FAULT: tuple[tuple[str, str], ...] = (
    (r"Cannot load local files", "Files of the server cannot be read: send the image as a data: URL."),
    (r"The URL must be from one of the allowed domains", "This server fetches no images from there: send a data: URL."),
    (r"Only base64 data URLs", "A data: URL must be base64: data:image/png;base64,…"),
    (r"multi_modal_data\['image'\]\[\d+\] is empty", "An image has no content: its URL is empty."),
    (r"Image size .* decompression bomb", "An image is too large: {message}"),
    (
        r"Failed to apply \w+ on data=.*PIL\.",
        "An image could not be processed: its sides differ too much, or it is too small.",
    ),
    (r"Cannot connect to host|Server disconnected$|Response payload is not completed|\d{3}, message=", _FETCH),
    (r"Failed to decode (frame|image)|Conversion from YUV failed|broken PNG file|invalid IPTC", _DECODE),
    (r"Unimplemented (pixel|DXGI) format|Unknown (pixel format flags|BLP)|'\w+ImageFile' object", _DECODE),
    (r"'(int|str|float|bool|list)' object has no attribute", "A member of the request has a value of the wrong type."),
)


def refusal_of(role: str, status: int, retry_after: str | None, body: bytes) -> ServiceError:
    """The error with which a pod's error answer is passed on.

    Args:
        role: what to call the pod in messages.
        status: the pod's HTTP status, 400 to 599.
        retry_after: its ``Retry-After`` header.
        body: its body, possibly cut.

    Returns:
        :class:`PodRefusal` for what the caller may know as it is, :class:`BadRequest` for a fault of the caller's
        that vLLM reports as its own, :class:`PodFailed` for the rest.
    """
    message, error_type, param = _parse(body)
    if status in _UNRELIABLE:
        for pattern, told in _CALLERS_FAULT:
            if re.match(pattern, message, re.DOTALL):
                return BadRequest(told.format(message=message.rstrip(".")), param=param)
    if status in _CALLERS:
        if status in _AS_BAD_REQUEST:
            status = 400
        message = message or f"The {role} refused this request (status {status})."
        error_type = error_type or _TYPES.get(status, BadRequest.type)
        if status == TOO_MANY_REQUESTS:
            retry_after = retry_after or Unavailable.retry_after
        return PodRefusal(status, error_type, message, param=param, retry_after=retry_after)
    if status in _CLASSED and message and error_type in _CLASSED_TYPES:
        return PodRefusal(status, error_type, message, param=param, retry_after=retry_after)
    if status == Unavailable.status:
        busy = f"The {role} cannot take this request now. Try again shortly."
        return PodRefusal(status, Unavailable.type, busy, retry_after=retry_after or Unavailable.retry_after)
    return PodFailed(f"The {role} failed on this request (status {status}).")


def _parse(body: bytes) -> tuple[str, str | None, str | None]:
    """Message, type and param, from any of the shapes that vLLM, FastAPI and proxies use; empty where there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return "", None, None
    if not isinstance(document, dict):
        return "", None, None
    error = document.get("error", document.get("detail"))
    if isinstance(error, str):
        return error, None, None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error_type, param = error.get("type"), error.get("param")
        return (
            error["message"],
            error_type if isinstance(error_type, str) else None,
            param if isinstance(param, str) else None,
        )
    return "", None, None
