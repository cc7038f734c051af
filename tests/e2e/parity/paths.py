"""The four APIs' paths."""

from tests.e2e.calls import CHAT

COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"

APIS = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
