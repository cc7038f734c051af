"""What ends a derender stream before its time."""

from __future__ import annotations

from typing import Any

from rendergen.vllm_plugin.errors import Refusal


class BrokenGeneration(Refusal):
    """What came as generate's answer is not one, or ended before its end."""

    status = 502
    type = "BadGatewayError"


class TooSilent(Refusal):
    """Nothing came for too long."""

    status = 504
    type = "TimeoutError"


class NotReady(Refusal):
    """The server has not finished starting."""

    status = 503
    type = "ServiceUnavailableError"


class AnsweredError(Exception):
    """An error that is answered as it is: generate's own, or one of vLLM's serving layer."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body["error"].get("message", "")))
        self.status = status
        self._body = body

    def body(self) -> dict[str, Any]:
        """OpenAI's error body, as it came."""
        return self._body


class CallerLeft(Exception):
    """The caller has gone, or takes nothing any more: nobody is left to answer."""


Failure = Refusal | AnsweredError | CallerLeft
