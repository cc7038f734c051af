"""What the plugin refuses, and in which words."""

from __future__ import annotations

from typing import Any, ClassVar


class Refusal(Exception):
    """A request that is not served, for a reason that is the caller's or its payload's.

    The message says what was wrong, where, and what to do; it is shown to callers.
    """

    status: ClassVar[int]
    """HTTP status."""
    type: ClassVar[str]
    """`type` in OpenAI's error body."""

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """OpenAI's error body, with the status as `code`, as vLLM has it."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.status}}


class BadPayload(Refusal):
    """The payload, or what is asked with it, cannot be served as it is."""

    status = 400
    type = "BadRequestError"


class NotSigned(Refusal):
    """A key is configured, and the payload has no signature made with one that is accepted."""

    status = 403
    type = "PermissionDeniedError"


class OtherFingerprint(Refusal):
    """The payload was made for a model, processor or tokenizer other than this server's."""

    status = 409
    type = "ConflictError"


class FeaturesMissing(Refusal):
    """An item comes as a hash alone, and nothing proves that the engine still holds what it stands for."""

    status = 412
    type = "PreconditionFailedError"


class TooLarge(Refusal):
    """The body is over a limit."""

    status = 413
    type = "RequestEntityTooLargeError"


class QueueFull(Refusal):
    """As many requests wait as may."""

    status = 429
    type = "RateLimitError"


class TooLate(Refusal):
    """The caller's deadline passed before the work began."""

    status = 504
    type = "DeadlineExceededError"
