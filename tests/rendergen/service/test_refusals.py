import json

import pytest

from rendergen.service.errors import PodFailed, PodRefusal, ServiceError, Unavailable
from rendergen.service.refusals import refusal_of

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/opt/vllm/entrypoints/launcher.py", line 12, in serve\n'
    "aiohttp.ClientConnectorError: Cannot connect to host 10.1.2.3:8000 ssl:default [key sk-secret]"
)
SECRETS = ("Traceback", "/opt/vllm", "10.1.2.3", "sk-secret", "<html>")


def body(message: str, kind: str = "BadRequestError", param: str | None = None, code: int = 400) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


# What came (status, Retry-After, body), and what is told (status, type, message, param, Retry-After).
PASSED_ON = {
    "vllm 400": (400, None, body("too long", param="messages"), 400, "BadRequestError", "too long", "messages", None),
    "vllm 404": (404, None, body("no model", "NotFoundError"), 404, "NotFoundError", "no model", None, None),
    "vllm 401": (401, None, b'{"error":"Unauthorized"}', 401, "UnauthorizedError", "Unauthorized", None, None),
    "fastapi 404": (404, None, b'{"detail":"Not Found"}', 404, "NotFoundError", "Not Found", None, None),
    "fastapi 405": (
        405,
        None,
        b'{"detail":"Method Not Allowed"}',
        405,
        "BadRequestError",
        "Method Not Allowed",
        None,
        None,
    ),
    "422 is a 400": (422, None, body("odd"), 400, "BadRequestError", "odd", None, None),
    "415 is a 400": (415, None, body("no JSON"), 400, "BadRequestError", "no JSON", None, None),
    "413": (413, None, body("large", "RequestEntityTooLargeError"), 413, "RequestEntityTooLargeError", "large")
    + (None,) * 2,
    "plugin 403": (
        403,
        None,
        body("no signature", "PermissionDeniedError"),
        403,
        "PermissionDeniedError",
        "no signature",
    )
    + (None,) * 2,
    "plugin 409": (409, None, body("other", "ConflictError"), 409, "ConflictError", "other", None, None),
    "plugin 412": (412, None, body("gone", "PreconditionFailedError"), 412, "PreconditionFailedError", "gone")
    + (None,) * 2,
    "plugin 504": (504, None, body("late", "DeadlineExceededError"), 504, "DeadlineExceededError", "late")
    + (None,) * 2,
    "409 from elsewhere": (409, None, b'{"detail":"x"}', 409, "ConflictError", "x", None, None),
    "412 from elsewhere": (412, None, b'{"detail":"x"}', 412, "PreconditionFailedError", "x", None, None),
    "429": (429, "3", body("busy", "RateLimitError"), 429, "RateLimitError", "busy", None, "3"),
    "429, no time": (429, None, body("busy", "RateLimitError"), 429, "RateLimitError", "busy", None, "1"),
    "rendergen 502": (502, None, body("It died.", "BadGatewayError"), 502, "BadGatewayError", "It died.", None, None),
    "rendergen 503": (
        503,
        "1",
        body("None is ready.", "ServiceUnavailableError"),
        503,
        "ServiceUnavailableError",
        "None is ready.",
        None,
        "1",
    ),
    "rendergen 504": (504, None, body("Late.", "GatewayTimeoutError"), 504, "GatewayTimeoutError", "Late.", None, None),
    "odd members": (
        400,
        None,
        b'{"error":{"message":"x","type":7,"param":["a"]}}',
        400,
        "BadRequestError",
        "x",
        None,
        None,
    ),
}


@pytest.mark.parametrize("case", PASSED_ON.values(), ids=PASSED_ON)
def test_what_a_pod_says_of_the_request_is_passed_on(case: tuple[object, ...]) -> None:
    """The caller's fault and the pod's load are the caller's to know, in whatever form the pod said it."""
    status, retry_after, sent, *told = case
    refusal = refusal_of("render pod", status, retry_after, sent)  # type: ignore[arg-type]
    assert isinstance(refusal, PodRefusal)
    assert [refusal.status, refusal.type, refusal.message, refusal.param, refusal.retry_after] == told


NOTHING_TO_TELL = {
    "empty": b"",
    "html": b"<html><h1>500 at 10.1.2.3</h1></html>",
    "half json": b'{"error":{"message":"Traceback at 10.1.2.3',
    "no utf-8": b"\xff\xfe{\x00",
    "a list": b'["Traceback"]',
    "a string": b'"Traceback"',
    "error is null": b'{"error":null}',
    "message is no string": b'{"error":{"message":["Traceback"]}}',
    "detail is a list": b'{"detail":[{"loc":["body"],"msg":"/opt/vllm"}]}',
    "as deep as it can be": b"[" * 65536,
}


@pytest.mark.parametrize("sent", NOTHING_TO_TELL.values(), ids=NOTHING_TO_TELL)
@pytest.mark.parametrize("status", [500, 501, 502, 504, 507, 599])
def test_a_failure_in_no_known_form_is_the_pods_failure(status: int, sent: bytes) -> None:
    """The caller learns which pod failed, and nothing of what it wrote."""
    refusal = refusal_of("generate pod", status, None, sent)
    assert isinstance(refusal, PodFailed)
    assert "generate pod" in refusal.message
    assert not any(secret in json.dumps(refusal.body()) for secret in SECRETS)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("form", ["error", "detail"])
def test_a_traceback_never_reaches_the_caller(status: int, form: str) -> None:
    """The message of a 5xx is the operator's, unless a rendergen service wrote it."""
    for sent in (json.dumps({form: TRACEBACK}).encode(), body(TRACEBACK, "InternalServerError", code=500)):
        refusal = refusal_of("render pod", status, None, sent)
        assert refusal.status == (503 if status == 503 else 502)
        assert not any(secret in json.dumps(refusal.body()) for secret in SECRETS)


@pytest.mark.parametrize("sent", NOTHING_TO_TELL.values(), ids=NOTHING_TO_TELL)
@pytest.mark.parametrize(("status", "told"), [(400, 400), (401, 401), (404, 404), (413, 413), (422, 400), (429, 429)])
def test_a_4xx_without_a_readable_message_stays_one(status: int, told: int, sent: bytes) -> None:
    """Its status alone says whose fault it is: a proxy's HTML 413 or 429 must not become a failure of the pod."""
    refusal = refusal_of("render pod", status, "9", sent)
    assert refusal.status == told
    assert refusal.headers() == {"Retry-After": "9"}
    assert "render pod" in refusal.message
    assert not any(secret in json.dumps(refusal.body()) for secret in SECRETS)


@pytest.mark.parametrize("sent", [*NOTHING_TO_TELL.values(), body(TRACEBACK, "InternalServerError")])
@pytest.mark.parametrize(("came", "told"), [("30", "30"), (None, "1")])
def test_a_503_stays_one_with_a_time_to_try_again(sent: bytes, came: str | None, told: str) -> None:
    """It is the pod's load, not its failure: 503 with Retry-After, its own where it gave one."""
    refusal: ServiceError = refusal_of("generate pod", 503, came, sent)
    assert refusal.status == 503
    assert refusal.type == Unavailable.type
    assert refusal.headers() == {"Retry-After": told}
    assert not any(secret in json.dumps(refusal.body()) for secret in SECRETS)


@pytest.mark.parametrize("status", [402, 418, 451, 499])
def test_a_4xx_that_no_pod_should_send_is_a_failure(status: int) -> None:
    """Only the statuses that vLLM and rendergen use are passed on."""
    assert isinstance(refusal_of("render pod", status, None, body("x")), PodFailed)
