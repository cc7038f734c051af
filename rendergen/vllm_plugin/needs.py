"""All of vLLM's internals that the plugin uses, by what they are used for. Nothing here imports vLLM."""

from __future__ import annotations

from rendergen.vllm_plugin.derender import needs as derender
from rendergen.vllm_plugin.internals import Need
from rendergen.vllm_plugin.trust import needs as trust

_PROTOCOL = "vllm.entrypoints.scale_out.token_in_token_out.protocol"
_GENERATE_REQUEST_FIELDS = (
    "request_id",
    "token_ids",
    "features",
    "content_parts",
    "sampling_params",
    "model",
    "stream",
    "cache_salt",
    "kv_transfer_params",
    "ec_transfer_params",
)

RENDER = (
    Need("vllm.entrypoints.scale_out.render.serving", "ServingRender.render_chat_request", ("request", "raw_request")),
    Need(
        "vllm.entrypoints.scale_out.render.serving",
        "ServingRender.render_completion_request",
        ("request", "raw_request"),
    ),
    Need(
        "vllm.entrypoints.scale_out.render.serving",
        "ServingRender._extract_mm_features",
        ("engine_input", "mm_payload"),
    ),
    Need("vllm.entrypoints.scale_out.render.serving", "ServingRender._placeholder_metadata_fields", ("modality",)),
    Need("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),
    Need("vllm.entrypoints.openai.completion.protocol", "CompletionRequest"),
    Need("vllm.entrypoints.anthropic.protocol", "AnthropicMessagesRequest"),
    Need("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest"),
    Need(
        "vllm.entrypoints.scale_out.render.serving", "ServingRender.render_messages_request", ("request", "raw_request")
    ),
    Need("vllm.entrypoints.scale_out.render.serving", "ServingRender.render_responses_request", ("request",)),
    Need("vllm.entrypoints.serve.utils.api_utils", "validate_json_request", ("raw_request",)),
)
GENERATE = (
    Need(_PROTOCOL, "GenerateRequest", fields=_GENERATE_REQUEST_FIELDS),
    Need(_PROTOCOL, "GenerateResponseBase"),
    Need(
        "vllm.entrypoints.scale_out.token_in_token_out.serving",
        "ServingTokens.serve_tokens",
        ("request", "raw_request"),
    ),
    Need("vllm.renderers.online_renderer", "OnlineRenderer.preprocess_completion", ("request", "prompt_input")),
    Need("vllm.entrypoints.serve.utils.api_utils", "load_aware_call"),
    Need("vllm.inputs", "mm_input", ("prompt_token_ids", "mm_kwargs", "mm_hashes", "mm_placeholders", "cache_salt")),
)
ITEMS = (
    Need("vllm.multimodal.inputs", "MultiModalFieldElem", fields=("data", "field")),
    Need("vllm.multimodal.inputs", "MultiModalKwargsItem"),
    Need("vllm.multimodal.inputs", "MultiModalKwargsItems"),
    Need("vllm.multimodal.inputs", "PlaceholderRange", fields=("offset", "length", "is_embed")),
    Need("vllm.multimodal.inputs", "MultiModalBatchedField", fields=("keep_on_cpu",)),
    Need("vllm.multimodal.inputs", "MultiModalFlatField", fields=("keep_on_cpu", "slices", "dim")),
    Need("vllm.multimodal.inputs", "MultiModalSharedField", fields=("keep_on_cpu", "batch_size")),
    Need("vllm.v1.serial_utils", "MsgpackEncoder", ("size_threshold",)),
)
NEEDS: tuple[Need, ...] = (*RENDER, *GENERATE, *ITEMS, *trust.NEEDS, *derender.NEEDS)
