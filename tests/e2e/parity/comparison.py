"""What an answer says, ids and times aside, and where two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.e2e.calls import CHAT, Reply
from tests.e2e.joined import chat_joined, messages_joined, responses_joined, without_own
from tests.e2e.parity.paths import COMPLETIONS, MESSAGES, RESPONSES

# Log probabilities are the same to three places.
TOLERANCE = 1e-3

# Members that upstream's own derender gives no answer.
BARE_PODS_LACK = ("system_fingerprint", "completion_tokens_details")

_JOINED = {CHAT: chat_joined, COMPLETIONS: chat_joined, MESSAGES: messages_joined, RESPONSES: responses_joined}
_STREAM = "text/event-stream"


# Errors of `/v1/messages` have Anthropic's types, by the status. vLLM writes its own there, and where a request does
# not fit the schema, its own form around them.
ANTHROPICS_TYPES = {400: "invalid_request_error", 404: "not_found_error", 501: "api_error"}


def said(path: str, reply: Reply) -> dict[str, Any]:
    """The status, the content type and all that a caller can read out of the body, as one value."""
    kind = reply.headers.get("Content-Type", "")
    streamed = kind.startswith(_STREAM)
    body = without_own(_JOINED[path](reply.text()) if streamed else reply.json())
    return {"status": reply.status, "content type": kind, "body": body}


def in_right_form(path: str, reply: Reply) -> dict[str, Any]:
    """What one server said, an error of `/v1/messages` in Anthropic's form."""
    value = said(path, reply)
    if path == MESSAGES and reply.status >= 400:
        error = {"type": ANTHROPICS_TYPES[reply.status], "message": value["body"]["error"]["message"]}
        value["body"] = {"type": "error", "error": error}
    return value


def without_what_bare_pods_lack(value: Any) -> Any:
    """The same without the members that no answer has with bare pods, wherever they are or are named."""
    if isinstance(value, dict):
        return {name: without_what_bare_pods_lack(each) for name, each in value.items() if name not in BARE_PODS_LACK}
    if isinstance(value, list):
        return [without_what_bare_pods_lack(each) for each in value if each not in BARE_PODS_LACK]
    return value


def error_of(reply: Reply) -> dict[str, Any]:
    """The error object of an answer: of its body, or of its stream."""
    streamed = reply.headers.get("Content-Type", "").startswith(_STREAM)
    return dict((chat_joined(reply.text()) if streamed else reply.json())["error"])


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Where two values differ, a line for each place."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            if name not in ours:
                yield f"{at}.{name} is not there, should be {_short(theirs[name])}"
            elif name not in theirs:
                yield f"{at}.{name} should not be there, is {_short(ours[name])}"
            else:
                yield from differences(ours[name], theirs[name], f"{at}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{at} has {len(ours)} items, should have {len(theirs)}: {_short(ours)}, should be {_short(theirs)}"
        for index, (our, their) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(our, their, f"{at}[{index}]")
    elif not _are_same(ours, theirs):
        yield f"{at} is {_short(ours)}, should be {_short(theirs)}"


def _are_same(ours: Any, theirs: Any) -> bool:
    if type(ours) is float and type(theirs) is float:
        return ours == theirs or abs(ours - theirs) < TOLERANCE
    return type(ours) is type(theirs) and bool(ours == theirs)


def _short(value: Any, most: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
