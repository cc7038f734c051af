"""Requests of `/v1/chat/completions`: each feature alone. In pairs: `pairs.py`."""

from __future__ import annotations

from typing import Any

from rendergen.tiny_model.abilities import ABILITIES, VARIATIONS
from tests.e2e.calls import RED, WHAT_COLOR, chat
from tests.e2e.parity.bodies import (
    DESCRIBE_IN_KOREAN,
    END_OF_TURN,
    GREEN,
    NAMED_TOOL,
    THINKING,
    USAGE,
    USAGE_ALL_ALONG,
    begun,
    example,
    red,
    schema,
    turns,
    with_tool,
)

LIMITS: dict[str, dict[str, Any]] = {
    "16 tokens, which render leaves out": chat("Count to 50", max_tokens=16),
    "16 tokens by their newer name": chat("Count to 50", max_completion_tokens=16),
    "few tokens": chat("Count to 50", max_tokens=3),
    "both names of the limit": chat("Count to 50", max_tokens=3, max_completion_tokens=5),
    "one token": red(max_tokens=1),
    "no limit": chat("Count to 12", max_tokens=None),
    "the end ignored": red(ignore_eos=True, max_tokens=24),
    "a least length": red(min_tokens=5),
    "a stop string": chat("Count to 30", stop=["7 8"]),
    "a stop string, not in a list": chat("Count to 30", stop="7 8"),
    "a stop string that is kept": chat("Count to 30", stop=["7 8"], include_stop_str_in_output=True),
    "stop strings over many tokens": chat("Count to 30", stop=["9 10 11 12 13 1", "20"], **USAGE),
    "a stop string too early": chat("Count to 30", stop="4", min_tokens=20),
    "a stop string that never comes": chat("Count to 12", stop=["and then something else"]),
    "a stop string within a character's bytes": chat(RED, DESCRIBE_IN_KOREAN, stop=["색"]),
    "a stop token": chat("Count to 20", stop_token_ids=[END_OF_TURN - 1, 20]),
    "nothing but the end": red(allowed_token_ids=[END_OF_TURN]),
    "nothing but the end, which is kept": red(allowed_token_ids=[END_OF_TURN], include_stop_str_in_output=True),
    "the end kept": red(include_stop_str_in_output=True),
    "special tokens kept": red(skip_special_tokens=False),
    "special tokens kept, the end ignored": red(skip_special_tokens=False, ignore_eos=True, max_tokens=5),
}

CHOICES: dict[str, dict[str, Any]] = {
    "three choices": chat("Count to 9", n=3, temperature=1.2, seed=3, max_tokens=20, **USAGE),
    "three choices with logprobs": chat(
        "Count to 9", n=3, temperature=1.5, seed=5, max_tokens=9, logprobs=True, top_logprobs=2
    ),
    "a seed": chat("Count to 50", temperature=1.5, seed=11, max_tokens=20),
    "other samplers": chat("Count to 9", temperature=1.1, seed=4, top_p=0.8, top_k=40, min_p=0.01, max_tokens=12),
    "penalties": chat("Count to 20", presence_penalty=0.5, frequency_penalty=0.7, max_tokens=20),
    "a repetition penalty": chat("Count to 20", repetition_penalty=1.3, max_tokens=30),
    "a bias": red(logit_bias={"600": 100}, max_tokens=4),
    "a forbidden word": red(bad_words=["Red"], max_tokens=6),
}

TELLING: dict[str, dict[str, Any]] = {
    "usage": red(**USAGE),
    "usage all along": example("thinking", **USAGE_ALL_ALONG),
    "no usage": red(stream_options={"include_usage": False}),
    "logprobs": red(logprobs=True),
    "logprobs of no candidates": red(logprobs=True, top_logprobs=0),
    "logprobs of candidates": red(logprobs=True, top_logprobs=5, **USAGE),
    "logprobs of bytes": example("Korean", logprobs=True, top_logprobs=8),
    "logprobs of odd bytes": example(
        "Korean", logprobs=True, top_logprobs=6, temperature=2.0, seed=11, max_tokens=40, ignore_eos=True
    ),
    "logprobs with a tool": with_tool(logprobs=True, top_logprobs=2),
    "logprobs with reasoning": example("thinking", logprobs=True, top_logprobs=2),
    "logprobs as token ids": red(logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True),
    "token ids": red(return_token_ids=True),
    "token ids with reasoning": example("thinking", return_token_ids=True, **USAGE),
    "token ids with a tool": with_tool(return_token_ids=True),
}

REASONING: dict[str, dict[str, Any]] = {
    "reasoning left out": example("thinking", include_reasoning=False, logprobs=True, **USAGE),
    "reasoning cut short": example("thinking", max_tokens=5, **USAGE),
    "reasoning of odd text": example("thinking", temperature=2.0, seed=2, max_tokens=60, ignore_eos=True),
    "reasoning with a tool": with_tool(**THINKING),
    "reasoning effort": chat("Count to 3", reasoning_effort="low"),
}

TOOLS: dict[str, dict[str, Any]] = {
    "a tool not to be called": with_tool(tool_choice="none"),
    "a tool that must be called": with_tool(tool_choice="required", **USAGE),
    "a tool that is named": with_tool(tool_choice=NAMED_TOOL, **USAGE),
    "a tool by choice": with_tool(tool_choice="auto", **USAGE),
    "a tool call cut short": with_tool(max_tokens=10),
    "a tool call stopped": with_tool(stop=["color"]),
    "one tool call at a time": with_tool(parallel_tool_calls=False),
}

FORMS: dict[str, dict[str, Any]] = {
    "a JSON object": red(response_format={"type": "json_object"}, max_tokens=20),
    "a JSON schema": red(response_format=schema("color"), max_tokens=40),
    "text as the format": red(response_format={"type": "text"}),
    "a choice": red(structured_outputs={"choice": ["Green", "Blue"]}),
    "a regular expression": red(structured_outputs={"regex": "[0-9]{3}"}),
    "a grammar": red(structured_outputs={"grammar": 'root ::= "Gr" ("ay" | "een")'}),
}

ROLES: dict[str, dict[str, Any]] = {
    "an answer to go on with": begun(),
    "a user's role": red(add_generation_prompt=False, max_tokens=6),
    "a truncated prompt": chat("Count to 20", truncate_prompt_tokens=5, max_tokens=8),
}

PROMPTS: dict[str, dict[str, Any]] = {
    "text alone": turns(("user", "Count to 7")),
    "a system message": turns(("system", "Answer briefly."), ("user", "Count to 7")),
    "three turns": turns(
        ("user", "Count to 3"), ("assistant", "1 2 3"), ("user", [RED, {"type": "text", "text": WHAT_COLOR}])
    ),
    "two images of other kinds": chat(RED, GREEN, "What colors are these images?"),
    "the same image twice": chat(RED, RED, "What colors are these images?"),
    "four images": chat(RED, GREEN, RED, GREEN, "What colors are these images?", max_tokens=12),
    "detail low": chat({**RED, "image_url": {**RED["image_url"], "detail": "low"}}, WHAT_COLOR),
    "detail high": chat({**RED, "image_url": {**RED["image_url"], "detail": "high"}}, WHAT_COLOR),
    "an image that is named": chat({**RED, "uuid": "red-of-parity"}, WHAT_COLOR),
    "no text beside the image": chat(RED, max_tokens=8),
    "empty text": chat("", max_tokens=8),
    "the model's signs in the text": chat("<|vision_start|><|vision_end|> Count to 5", max_tokens=12),
    "text that some take for line ends": chat("a\u2028b\u2029c\u0085d\x0b\x0c\r\n Count to 5", max_tokens=12),
    "text beyond the basic plane": chat("🏳️‍🌈 𐍈 e\u0301 Count to 5", max_tokens=12),
    "a null content": turns(("user", "Count to 3"), ("assistant", None), ("user", "Count to 4")),
}

EXTRAS: dict[str, dict[str, Any]] = {
    "a user": red(user="u-1"),
    "unknown members": red(no_such_member={"deep": [1, None]}, another=1.5),
    "members that are null": red(stop=None, n=None, tools=None, stream_options=None, seed=None, logit_bias=None),
    "a cache salt": red(cache_salt="salt"),
    "a priority of nothing": red(priority=0),
    "a request id": red(request_id="parity-request-id"),
    "metadata and the store": red(metadata={"a": "b"}, store=False, service_tier="auto"),
    "extra arguments": red(vllm_xargs={"a": 1}),
    "settings of the template": red(chat_template_kwargs={"enable_thinking": False, "no_such": 1}),
    "chunks of several tokens": chat("Count to 12", stream_interval=4),
    "no model": {name: value for name, value in red().items() if name != "model"},
}

# What makes an answer different: these are also derendered in every way there is.
CHAT_REQUESTS: dict[str, dict[str, Any]] = {
    **{ability.name: example(ability.name, **USAGE) for ability in ABILITIES},
    **LIMITS,
    **CHOICES,
    **TELLING,
    **REASONING,
    **TOOLS,
    **FORMS,
    **ROLES,
    "garbage": chat("Count to 50", temperature=2.0, seed=9, max_tokens=120, ignore_eos=True, logprobs=True),
}

# What makes a prompt different, or nothing.
MORE_CHATS: dict[str, dict[str, Any]] = {
    **{ability.name: example(ability.name) for ability in VARIATIONS},
    **{f"{ability.name}, another": example(ability.name, 1) for ability in (*ABILITIES, *VARIATIONS)},
    **PROMPTS,
    **EXTRAS,
}

# These need log probabilities of the prompt, which generate's stream does not have.
ONLY_WHOLE: dict[str, dict[str, Any]] = {
    "prompt logprobs": chat("Count to 3", prompt_logprobs=1),
    "an answer to go on with, echoed": begun(echo=True),
    "an answer to go on with, echoed with logprobs": begun(echo=True, logprobs=True, top_logprobs=2),
}
