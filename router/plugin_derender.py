"""The plugin's derender: what it is told of a request. See ``docs/derender-stream.md``."""

from __future__ import annotations

import json
import re

from rendergen.payload import Piece
from router.api_request import ApiRequest
from router.apis import COMPLETIONS
from router.payload import Payload
from router.prompt import Prompt

# vLLM's own default for the most candidates that may be asked for (`--max-logprobs`).
_MOST_CANDIDATES = 20
_COUNT = re.compile(rb"[0-9]{1,4}")


def context(request: ApiRequest, payload: Payload, prompt: Prompt, answer_id: str, created: int) -> tuple[Piece, ...]:
    """The first line of a derender stream.

    Args:
        request: the caller's.
        payload: what generate was given.
        prompt: its token ids.
        answer_id: the answer's ``id``.
        created: the answer's time, in Unix seconds.
    """
    rest = b',"prompt_token_ids":%b,"sampling_params":%b,"mm_placeholders":%b,"request_id":%b,"created":%d}' % (
        prompt.ids(),
        payload.sampling_params,
        payload.placeholders() or b"null",
        json.dumps(answer_id).encode(),
        created,
    )
    # A line: what stands between two tokens of JSON may be a line's end as well as a blank, and within them it is none.
    return (b'{"request":', *request.blanked(), rest.replace(b"\n", b" ") + b"\n")


def render_changes(request: ApiRequest) -> dict[str, bytes]:
    """Members of the request that are other for render than the caller has them, so that generate tells enough.

    Log probabilities of the prompt are in generate's single answer alone, and echoed text has them.
    """
    echoes = request.api is COMPLETIONS and request.is_true("echo") and request.given("logprobs") is not None
    if request.streams and echoes:
        return {"stream": b"false", "stream_options": b"null"}
    return {}


def sampling_changes(request: ApiRequest) -> dict[str, bytes]:
    """Sampling params that generate needs for this request beyond those rendered.

    For a sampled token that is not among the most probable, completions give one candidate more than was asked for.
    """
    asked = request.given("logprobs") if request.api is COMPLETIONS else None
    if asked is None or not _COUNT.fullmatch(asked) or int(asked) >= _MOST_CANDIDATES:
        return {}
    return {"logprobs": b"%d" % (int(asked) + 1)}
