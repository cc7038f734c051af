"""What a caller can be told went wrong, and its form in HTTP.

Every error that crosses a service's edge is a :class:`ServiceError`. Its message is written for the caller: what was
wrong and what to do, with no address, path or key of ours in it. What only the operator may see goes in the log.
The table of statuses is that of ``docs/ARCHITECTURE.md``, "Answers to callers".
"""

from __future__ import annotations

import json

from rendergen import sse


class ServiceError(Exception):
    """Base of all errors that are answered to a caller. Subclasses fix status, OpenAI's ``type`` and ``Retry-After``.

    Args:
        message: for the caller.
        param: the request member at fault, if one is.
    """

    status: int = 500
    type: str = "InternalServerError"
    retry_after: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, object]:
        """OpenAI's error object; ``code`` is the HTTP status, as vLLM has it."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.status}}

    def json(self) -> bytes:
        """The body as JSON, in ASCII: a message that a pod wrote may hold half a surrogate pair, which has no UTF-8."""
        return json.dumps(self.body()).encode()

    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer: ``Retry-After`` where trying again makes sense."""
        return {"Retry-After": self.retry_after} if self.retry_after is not None else {}

    def event(self) -> bytes:
        """The same as one server-sent event, for an error after the first byte of a stream."""
        return sse.written(self.json())


class InternalError(ServiceError):
    """A fault of ours. The caller learns no more than that; the log has the traceback."""


class BadRequest(ServiceError):
    """The request cannot be served as it is, and would not be on another try."""

    status = 400
    type = "BadRequestError"


class Unauthorized(ServiceError):
    """The caller has no API key, or not a good one."""

    status = 401
    type = "UnauthorizedError"

    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class RouteNotFound(ServiceError):
    """No such path here."""

    status = 404
    type = "NotFoundError"


class ModelNotFound(ServiceError):
    """No pod is known to serve the model that the request names."""

    status = 404
    type = "NotFoundError"


class MethodNotAllowed(ServiceError):
    """The path is known, but not with this method."""

    status = 405
    type = "MethodNotAllowedError"


class CallerTooSlow(ServiceError):
    """The caller stopped sending its body."""

    status = 408
    type = "RequestTimeoutError"


class TooLarge(ServiceError):
    """The body is over the limit."""

    status = 413
    type = "RequestEntityTooLargeError"


class CallerLeft(ServiceError):
    """The caller closed its connection. Nobody reads this answer; the status is for log and metrics."""

    status = 499
    type = "ClientClosedRequestError"


class NotSupported(ServiceError):
    """A valid request for something that is not built."""

    status = 501
    type = "NotImplementedError"


class PodFailed(ServiceError):
    """A pod died during the request, or answered something that is no answer."""

    status = 502
    type = "BadGatewayError"


class Unavailable(ServiceError):
    """Nothing can serve now: no pod is ready, or none can be reached."""

    status = 503
    type = "ServiceUnavailableError"
    retry_after = "1"


class DeadlineExceeded(ServiceError):
    """A stage took longer than its budget."""

    status = 504
    type = "GatewayTimeoutError"


class PodRefusal(ServiceError):
    """A pod's own error answer, passed on: it speaks of the caller's request (4xx) or of the pod's load (429, 503).

    Args:
        status: HTTP status to answer with.
        error_type: ``error.type`` as the pod named it.
        message: ``error.message``, for the caller.
        param: ``error.param`` as the pod named it.
        retry_after: ``Retry-After`` as the pod sent it, if it did.
    """

    def __init__(
        self, status: int, error_type: str, message: str, *, param: str | None = None, retry_after: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.status = status
        self.type = error_type
        self.retry_after = retry_after
