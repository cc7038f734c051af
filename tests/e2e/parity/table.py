"""All rows."""

from __future__ import annotations

from tests.e2e.calls import CHAT
from tests.e2e.parity.bad_chats import bad_chats
from tests.e2e.parity.bad_others import bad_others
from tests.e2e.parity.chat_requests import CHAT_REQUESTS, MORE_CHATS, ONLY_WHOLE
from tests.e2e.parity.completion_requests import (
    COMPLETION_REQUESTS,
    COMPLETIONS_ONLY_WHOLE,
    MORE_COMPLETIONS,
    SEVERAL_PROMPTS,
)
from tests.e2e.parity.exceptions import with_exceptions
from tests.e2e.parity.message_requests import ANTHROPIC_HEADERS, MESSAGE_REQUESTS, MORE_MESSAGES
from tests.e2e.parity.pairs import paired
from tests.e2e.parity.paths import COMPLETIONS, MESSAGES, RESPONSES
from tests.e2e.parity.response_requests import MORE_RESPONSES, RESPONSE_REQUESTS
from tests.e2e.parity.row import Row, both

_ROWS = (
    *both(CHAT, CHAT_REQUESTS),
    *both(CHAT, MORE_CHATS),
    *both(CHAT, ONLY_WHOLE),
    *paired(),
    *both(COMPLETIONS, {**COMPLETION_REQUESTS, **MORE_COMPLETIONS, **SEVERAL_PROMPTS}),
    *both(COMPLETIONS, COMPLETIONS_ONLY_WHOLE),
    *both(MESSAGES, {**MESSAGE_REQUESTS, **MORE_MESSAGES}),
    *both(MESSAGES, {"the official client's headers": MESSAGE_REQUESTS["text"]}, headers=ANTHROPIC_HEADERS),
    *both(RESPONSES, {**RESPONSE_REQUESTS, **MORE_RESPONSES}),
    *bad_chats(),
    *bad_others(),
)

ROWS: tuple[Row, ...] = tuple(with_exceptions(_ROWS))
