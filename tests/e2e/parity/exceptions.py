"""What is otherwise than the table's rule says: other statuses of one server, and differences that are right.

The rule is: a good request is a 200, a bad one a 400, and the router's answer is the same. Each exception is named by
its row, and must be there: one that has gone fails its test, so that these lists stay true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tests.e2e.parity.paths import MESSAGES, RESPONSES
from tests.e2e.parity.row import BROKEN_OFF, Difference, Row

# One server's status, where it is not the rule's.
STATUSES: dict[str, int] = {
    "chat/completions: prompt logprobs, streamed": 400,
    "completions: prompt logprobs, streamed": 400,
    "chat/completions: a byte order mark": 200,
    "chat/completions: the model twice": 200,
    "chat/completions: stream twice": 200,
    "chat/completions: an unknown role": 200,
    "chat/completions: a data URL of no base64": 501,
    "chat/completions: a file": 500,
    "chat/completions: structured outputs that are a number": 500,
    "chat/completions: an empty model": 200,
    "chat/completions: an unknown model": 404,
    "chat/completions: an unknown model, streamed": 404,
    "chat/completions: a broken regular expression, streamed": 200,
    "chat/completions: a schema of an unknown type, streamed": 200,
    "chat/completions: stop_token_ids [10000000], streamed": 200,
    'chat/completions: logit_bias {"9999999": 1}, streamed': 200,
    "chat/completions: allowed_token_ids [], streamed": 200,
    "chat/completions: too many candidates, streamed": 200,
    "completions: an unknown model": 404,
    "completions: an unknown model, streamed": 404,
    "chat/completions: beams": 200,
    'chat/completions: logit_bias {"5": NaN}': 200,
    "completions: beams": 200,
    "completions: a token that is not there, streamed": 200,
    "completions: a stop token that is not there, streamed": 200,
    "completions: logprobs 1000, streamed": 200,
    "messages: an unknown model": 404,
    "messages: an unknown model, streamed": 404,
    "messages: a choice without tools": 200,
    "messages: an image without a source": 200,
    "messages: a broken schema, streamed": 200,
    "responses: an unknown model": 404,
    "responses: an unknown model, streamed": 404,
    "responses: an answer before": 404,
    "responses: an answer before of an odd id": 404,
    "responses: a broken schema, streamed": BROKEN_OFF,
    "responses: a stop token that is not there, streamed": BROKEN_OFF,
}

_IN_STREAM = Difference("one server has the error in a stream that it began with a 200", 400, same_error=True)
_NO_OBJECT = Difference("the router has to read a request's top level", 400, "not a JSON object that can be used")
_TWICE = Difference("what decides must not be said twice", 400, "twice")
_NO_NAME = Difference("the router chooses pods by the model", 400, "must be the name of a model")
_UNKNOWN = Difference("the router chooses pods by the model", 404, "`no-such-model` does not exist", only_words=True)
_BEAMS = Difference("upstream's scale-out endpoints have no beam search", 400, "beam search")
_NOT_FETCHED = Difference("the router opens no way to an address of the caller's", 400, "data: URL")
_FAULT = "the caller's fault, which one server takes for its own"
_BROKEN_OFF = "one server breaks off its stream"
_CHECKED = "sampling params are checked before the engine sees them"
_STATELESS = "nothing is stored"


def _checked(name: str) -> Difference:
    return Difference(_CHECKED, 400, f"{name} has token id", only_words=True)


def _checked_in_stream(name: str) -> Difference:
    return Difference(f"{_CHECKED}, and an error has its status", 400, f"{name} has token id")


DIFFERENCES: dict[str, Difference] = {
    **{
        f"chat/completions: {name}": _NO_OBJECT
        for name in (
            *("nothing", "no JSON", "cut JSON", "a comma too many", "null", "a list", "a string", "two objects"),
            *("many brackets", "a byte order mark", "a form"),
        )
    },
    **{
        f"{path}: {name}": _NO_OBJECT
        for path in ("completions", "messages", "responses")
        for name in ("nothing", "cut JSON", "a list")
    },
    **{
        f"{path}: an unknown model{streamed}": _UNKNOWN
        for path in ("chat/completions", "completions", "messages", "responses")
        for streamed in ("", ", streamed")
    },
    "chat/completions: not UTF-8": Difference("one server's error has another form than its others", 400, "parsing"),
    "chat/completions: the model twice": _TWICE,
    "chat/completions: messages twice": _TWICE,
    "chat/completions: stream twice": _TWICE,
    "chat/completions: model 5": _NO_NAME,
    'chat/completions: model ["tiny-vlm"]': _NO_NAME,
    "chat/completions: a remote image": _NOT_FETCHED,
    "chat/completions: a remote image, streamed": _NOT_FETCHED,
    "chat/completions: an image of this machine": _NOT_FETCHED,
    "chat/completions: a file": _NOT_FETCHED,
    "chat/completions: a url of an unknown scheme": _NOT_FETCHED,
    "messages: a remote image": _NOT_FETCHED,
    "responses: a remote image": _NOT_FETCHED,
    "chat/completions: a data URL of no base64": Difference(_FAULT, 400, "must be base64"),
    "chat/completions: structured outputs that are a number": Difference(_FAULT, 400, "wrong type"),
    'chat/completions: logit_bias {"9999999": 1}': _checked("logit_bias"),
    'chat/completions: logit_bias {"-1": 1}': _checked("logit_bias"),
    "chat/completions: stop_token_ids [10000000]": _checked("stop_token_ids"),
    "chat/completions: stop_token_ids [-5]": _checked("stop_token_ids"),
    "chat/completions: stop_token_ids [1099511627776]": _checked("stop_token_ids"),
    "chat/completions: allowed_token_ids [10000000]": _checked("allowed_token_ids"),
    "chat/completions: allowed_token_ids [-1]": _checked("allowed_token_ids"),
    'chat/completions: logit_bias {"9999999": 1}, streamed': _checked_in_stream("logit_bias"),
    "chat/completions: stop_token_ids [10000000], streamed": _checked_in_stream("stop_token_ids"),
    "chat/completions: a broken regular expression, streamed": _IN_STREAM,
    "chat/completions: a schema of an unknown type, streamed": _IN_STREAM,
    "chat/completions: allowed_token_ids [], streamed": _IN_STREAM,
    "chat/completions: too many candidates, streamed": _IN_STREAM,
    "chat/completions: an answer to go on with, echoed, streamed": _IN_STREAM,
    "chat/completions: an answer to go on with, echoed with logprobs, streamed": _IN_STREAM,
    "chat/completions: beams": _BEAMS,
    "completions: beams": _BEAMS,
    "completions: an empty prompt of several": Difference("each prompt is rendered on its own", 400, "non-empty"),
    "completions: a token that is not there": Difference(_CHECKED, 400, "beyond the vocabulary", only_words=True),
    "completions: a bias for a token that is not there": _checked("logit_bias"),
    "completions: a stop token that is not there": _checked("stop_token_ids"),
    "completions: a stop token that is not there, streamed": _checked_in_stream("stop_token_ids"),
    "completions: a token that is not there, streamed": Difference(
        f"{_CHECKED}, and an error has its status", 400, "beyond the vocabulary"
    ),
    "completions: logprobs 1000, streamed": _IN_STREAM,
    "messages: a broken schema, streamed": Difference("one server cannot write its error", 400, "Invalid type"),
    "responses: an answer before": Difference(_STATELESS, 400, "previous_response_id"),
    "responses: an answer before of an odd id": Difference(_STATELESS, 400, "previous_response_id"),
    "responses: in the background": Difference(_STATELESS, 400, "background"),
    "responses: a stop token that is not there": _checked("stop_token_ids"),
    "responses: a broken schema, streamed": Difference(_BROKEN_OFF, 400, "Invalid type"),
    "responses: a stop token that is not there, streamed": Difference(_BROKEN_OFF, 400, "stop_token_ids"),
}

_NOT_BARE = Difference("upstream derenders neither messages nor responses", 501, "plugin")

_BARE_STOP = Difference("upstream's derender leaves stop strings in the text", 400, "`stop` is not served with")
_BARE_ECHO = Difference("upstream's derender does not know the prompt", 400, "`echo` is not served")
_BARE_IDS = Difference("upstream's derender always gives text", 400, "`return_tokens_as_token_ids` is not served")
_BARE_HIDDEN = Difference("upstream's derender tells all logprobs", 400, "`include_reasoning` cannot be false")
_BARE_CANDIDATES = Difference("upstream's generate has no candidates for it", 400, "`logprob_token_ids` is not served")


def _whole_and_streamed(listed: Difference, *names: str) -> dict[str, Difference]:
    return {f"{name}{streamed}": listed for name in names for streamed in ("", ", streamed")}


# With bare pods: where it is not what DIFFERENCES says. None: one server's answer.
BARE: dict[str, Difference | None] = {
    **{name: None for name, listed in DIFFERENCES.items() if listed.only_words and listed.why == _CHECKED},
    **{
        name: _IN_STREAM
        for name, listed in DIFFERENCES.items()
        if listed.why.startswith(f"{_CHECKED},") and name.startswith(("chat", "completions"))
    },
    **_whole_and_streamed(
        _BARE_STOP, "chat/completions: a stop string too early", "chat/completions: a tool call stopped"
    ),
    "chat/completions: a tool and a stop string, streamed": _BARE_STOP,
    "chat/completions: a tool and the stop string kept": _BARE_STOP,
    "chat/completions: a tool that must be called and a stop string": _BARE_STOP,
    "chat/completions: a tool that must be called and the stop string kept, streamed": _BARE_STOP,
    "chat/completions: a tool that is named and a stop string, streamed": _BARE_STOP,
    "chat/completions: a tool that is named and the stop string kept": _BARE_STOP,
    **_whole_and_streamed(
        _BARE_ECHO,
        "chat/completions: an answer to go on with, echoed",
        "chat/completions: an answer to go on with, echoed with logprobs",
        "completions: echoed",
        "completions: echoed from token ids",
        "completions: echoed with token ids",
        "completions: echoed with logprobs",
        "completions: the prompt alone, with logprobs",
        "completions: two prompts echoed",
    ),
    **_whole_and_streamed(_BARE_IDS, "chat/completions: logprobs as token ids", "completions: logprobs as token ids"),
    **_whole_and_streamed(_BARE_HIDDEN, "chat/completions: reasoning left out"),
    "chat/completions: logprob_token_ids [5]": _BARE_CANDIDATES,
    "chat/completions: reasoning of odd text, streamed": Difference(
        "upstream's derender leaves out the special tokens that one server's stream has after reasoning",
        200,
        at_times=True,
    ),
    "chat/completions: thinking and a tool that is named, streamed": Difference(
        "upstream's derender gives a call of no arguments yet an empty object", 200, at_times=True
    ),
}


def _with_bare_pods(row: Row, name: str) -> Difference | None:
    listed = DIFFERENCES.get(name)
    if row.path in (MESSAGES, RESPONSES) and listed not in (_NO_OBJECT, _UNKNOWN, _NOT_FETCHED):
        return _NOT_BARE
    return BARE.get(name, listed)


def with_exceptions(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each with what is said of it here."""
    unused = {*STATUSES, *DIFFERENCES, *BARE}
    for row in rows:
        name = str(row)
        unused.discard(name)
        yield replace(
            row,
            status=STATUSES.get(name, row.status),
            differs=DIFFERENCES.get(name),
            bare=_with_bare_pods(row, name),
        )
    assert not unused, f"no such rows: {sorted(unused)}"
