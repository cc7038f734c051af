"""What vLLM's own derender would answer wrongly, and nobody could put right: refused. See ``docs/bare-pods.md``."""

from __future__ import annotations

from rendergen.service.errors import BadRequest
from router.api_request import ApiRequest
from router.upstream_asked import asked_of, stop_strings, whole_number

_REMEDY = "Leave it out, or load rendergen's plugin on the render pods (VLLM_PLUGINS=rendergen)."


def refuse(request: ApiRequest) -> None:
    """Refuse a chat or completions request that would be answered wrongly by pods without the plugin.

    Raises:
        BadRequest: it is one.
    """
    for param, reason in _reasons(request).items():
        raise BadRequest(f"Without rendergen's plugin, `{param}` {reason}. {_REMEDY}", param=param)


def _reasons(request: ApiRequest) -> dict[str, str]:
    """Why each param cannot be served, for those that cannot."""
    found: dict[str, str] = {}
    has_logprobs = _has_logprobs(request)
    if request.is_true("echo"):
        found["echo"] = "is not served: vLLM's derender endpoint does not know the prompt's text"
    if request.is_true("return_prompt_text"):
        found["return_prompt_text"] = "is not served: vLLM's derender endpoint does not know the prompt's text"
    if request.given("logprob_token_ids") is not None:
        found["logprob_token_ids"] = "is not served: vLLM's generate endpoint has no candidates for it"
    if has_logprobs and request.is_true("return_tokens_as_token_ids"):
        found["return_tokens_as_token_ids"] = "is not served: vLLM's derender endpoint always gives text"
    if has_logprobs and _hides_reasoning(request):
        found["include_reasoning"] = "cannot be false with `logprobs`, which would tell the reasoning"
    if stop_strings(request):
        # The string is cut off the text once that has been parsed: a tool call cannot be cut.
        if request.given("tools") not in (None, b"[]") and request.given("tool_choice") != b'"none"':
            found["stop"] = "is not served with `tools`: use `stop_token_ids`"
        # An earlier one did not end the text, and the first is taken for the one that did.
        elif whole_number(asked_of(request, "min_tokens")):
            found["stop"] = "is not served with `min_tokens`"
    return found


def _has_logprobs(request: ApiRequest) -> bool:
    if request.api.name == "chat":
        return request.is_true("logprobs")
    return request.given("logprobs") is not None


def _hides_reasoning(request: ApiRequest) -> bool:
    return request.given("include_reasoning") is not None and not request.is_true("include_reasoning")
