"""What of vLLM derender in a stream stands on."""

from __future__ import annotations

from rendergen.vllm_plugin.internals import Need

TEXT_PARAMS = (
    "detokenize",
    "flat_logprobs",
    "include_stop_str_in_output",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
)
"""The sampling params that say how tokens become text and log probabilities; the others are the engine's alone."""

_CHAT = "vllm.entrypoints.openai.chat_completion"
_COMPLETION = "vllm.entrypoints.openai.completion"
_MESSAGES = "vllm.entrypoints.anthropic"
_RESPONSES = "vllm.entrypoints.openai.responses"

NEEDS: tuple[Need, ...] = (
    # The serving layer, run whole.
    Need(
        f"{_CHAT}.serving",
        "OpenAIServingChat",
        (
            "engine_client",
            "models",
            "response_role",
            "online_renderer",
            "request_logger",
            "chat_template",
            "chat_template_content_format",
            "trust_request_chat_template",
            "return_tokens_as_token_ids",
            "reasoning_parser",
            "enable_auto_tools",
            "exclude_tools_when_tool_choice_none",
            "tool_parser",
            "tool_strict_level",
            "enable_prompt_tokens_details",
            "enable_force_include_usage",
            "default_chat_template_kwargs",
        ),
    ),
    Need(f"{_CHAT}.serving", "OpenAIServingChat.create_chat_completion", ("request", "raw_request")),
    Need(
        f"{_CHAT}.serving",
        "OpenAIServingChat.chat_completion_stream_generator",
        ("request", "result_generator", "request_id", "model_name"),
    ),
    Need(
        f"{_CHAT}.serving",
        "OpenAIServingChat.chat_completion_full_generator",
        ("request", "result_generator", "request_id", "model_name"),
    ),
    Need(
        f"{_COMPLETION}.serving",
        "OpenAIServingCompletion",
        (
            "engine_client",
            "models",
            "online_renderer",
            "request_logger",
            "return_tokens_as_token_ids",
            "enable_prompt_tokens_details",
            "enable_force_include_usage",
        ),
    ),
    Need(f"{_COMPLETION}.serving", "OpenAIServingCompletion.create_completion", ("request", "raw_request")),
    Need(
        f"{_COMPLETION}.serving",
        "OpenAIServingCompletion.completion_stream_generator",
        ("request", "engine_inputs", "result_generator", "request_id", "created_time", "model_name"),
    ),
    Need(
        f"{_COMPLETION}.serving",
        "OpenAIServingCompletion.request_output_to_completion_response",
        ("final_res_batch", "request", "request_id", "created_time", "model_name"),
    ),
    Need(f"{_MESSAGES}.serving", "AnthropicServingMessages", ("disabled_thinking_effort", "tool_strict_level")),
    Need(f"{_MESSAGES}.serving", "AnthropicServingMessages.create_messages", ("request", "raw_request")),
    Need(f"{_MESSAGES}.serving", "AnthropicServingMessages._get_disabled_thinking_effort"),
    Need(f"{_RESPONSES}.serving", "OpenAIServingResponses", ("online_renderer", "tool_server", "reasoning_parser")),
    Need(f"{_RESPONSES}.serving", "OpenAIServingResponses.create_responses", ("request", "raw_request")),
    Need(
        f"{_RESPONSES}.serving",
        "OpenAIServingResponses.responses_stream_generator",
        ("request", "sampling_params", "result_generator", "context", "model_name"),
    ),
    Need(
        f"{_RESPONSES}.serving",
        "OpenAIServingResponses.responses_full_generator",
        ("request", "sampling_params", "result_generator", "context", "model_name"),
    ),
    Need(
        f"{_CHAT}.protocol",
        "ChatCompletionRequest",
        fields=("stream", "n", "echo", "use_beam_search", "return_token_ids", "return_prompt_text"),
    ),
    Need(
        f"{_COMPLETION}.protocol",
        "CompletionRequest",
        fields=("stream", "n", "echo", "use_beam_search", "return_token_ids"),
    ),
    Need(f"{_MESSAGES}.protocol", "AnthropicMessagesRequest", fields=("stream", "thinking")),
    Need(
        f"{_RESPONSES}.protocol",
        "ResponsesRequest",
        fields=("stream", "background", "previous_response_id", "store", "request_id"),
    ),
    # What stands behind it, and is stood in for.
    Need("vllm.renderers.online_renderer", "OnlineRenderer.render_chat", ("request",)),
    Need("vllm.renderers.online_renderer", "OnlineRenderer.preprocess_chat", ("request", "messages")),
    Need("vllm.renderers.online_renderer", "OnlineRenderer.preprocess_completion", ("request", "prompt_input")),
    Need("vllm.renderers.base", "BaseRenderer.render_chat_async", ("conversations", "chat_params")),
    Need("vllm.renderers.base", "BaseRenderer.render_cmpl_async", ("prompts",)),
    Need("vllm.renderers.hf", "HfRenderer"),
    Need("vllm.renderers.hf", "resolve_chat_template_content_format", ("chat_template", "tools", "given_format")),
    Need("vllm.renderers.chat_utils", "parse_chat_messages", ("messages", "model_config", "content_format")),
    Need("vllm.inputs.engine", "tokens_input", ("prompt_token_ids", "prompt")),
    Need("vllm.multimodal.inputs", "PlaceholderRange", ("offset", "length")),
    Need("vllm.entrypoints.launchers.cli_args", "resolve_default_chat_template_kwargs", ("args",)),
    Need("vllm.entrypoints.serve", "create_error_response", ("message",)),
    Need("vllm.entrypoints.serve.engine.protocol", "ErrorResponse", fields=("error",)),
    Need("vllm.exceptions", "GenerationError"),
    # What makes outputs of tokens.
    Need(
        "vllm.outputs",
        "RequestOutput",
        (
            "request_id",
            "prompt",
            "prompt_token_ids",
            "prompt_logprobs",
            "outputs",
            "finished",
            "num_cached_tokens",
            "num_cache_creation_tokens",
            "kv_transfer_params",
            "ec_transfer_params",
        ),
    ),
    Need(
        "vllm.outputs",
        "CompletionOutput",
        (
            "index",
            "text",
            "token_ids",
            "cumulative_logprob",
            "logprobs",
            "routed_experts",
            "finish_reason",
            "stop_reason",
            "spec_decode_metrics",
        ),
    ),
    Need("vllm.logprobs", "Logprob", ("logprob", "rank", "decoded_token")),
    Need("vllm.v1.engine.detokenizer", "IncrementalDetokenizer.from_new_request", ("tokenizer", "request")),
    Need("vllm.v1.engine.detokenizer", "BaseIncrementalDetokenizer.update", ("new_token_ids", "stop_terminated")),
    Need("vllm.v1.engine.detokenizer", "BaseIncrementalDetokenizer.get_next_output_text", ("finished", "delta")),
    Need("vllm.v1.engine.logprobs", "LogprobsProcessor.from_new_request", ("tokenizer", "request")),
    Need("vllm.v1.engine.logprobs", "LogprobsProcessor.update_from_output", ("output",)),
    Need("vllm.v1.outputs", "LogprobsLists", fields=("logprob_token_ids", "logprobs", "sampled_token_ranks")),
    Need(
        "vllm.sampling_params",
        "SamplingParams",
        fields=("n", "logprobs", "prompt_logprobs", "output_kind", *TEXT_PARAMS),
    ),
    Need("vllm.sampling_params", "RequestOutputKind.DELTA"),
)
