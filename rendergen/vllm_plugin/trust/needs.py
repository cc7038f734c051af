"""vLLM's internals that the trust checks use."""

from __future__ import annotations

from rendergen.vllm_plugin.internals import Need

_INPUTS = "vllm.multimodal.inputs"
_PROCESSING = "vllm.multimodal.processing"

DIGESTS = (Need("vllm.v1.utils", "tensor_data", ("tensor",)),)
FINGERPRINT = (
    Need("vllm.transformers_utils.repo_utils", "try_get_local_file", ("model", "file_name", "revision")),
    Need("vllm.config", "ModelConfig", fields=("model", "revision", "dtype", "hf_overrides", "multimodal_config")),
    Need("vllm.config", "MultiModalConfig", fields=("mm_processor_kwargs", "mm_device_do_normalize")),
)
GEOMETRY = (
    Need("vllm.multimodal", "MULTIMODAL_REGISTRY"),
    Need("vllm.multimodal.registry", "MultiModalRegistry.create_processor", ("model_config",)),
    Need("vllm.multimodal.encoder_budget", "MultiModalBudget", ("vllm_config", "mm_registry")),
    Need("vllm.multimodal.encoder_budget", "MultiModalBudget.get_encoder_budget"),
    Need("vllm.config", "ModelConfig.get_vocab_size"),
    Need("vllm.config", "ModelConfig", fields=("max_model_len", "hf_config")),
    Need("vllm.config", "SchedulerConfig", fields=("max_num_batched_tokens", "disable_chunked_mm_input")),
    Need(_INPUTS, "MultiModalFieldConfig.flat_from_sizes", ("size_per_item", "dim")),
    Need(_INPUTS, "MultiModalFieldConfig.batched", ("keep_on_cpu",)),
)
EXAMPLES = (
    Need(_PROCESSING, "TimingContext", ("enabled",)),
    Need(f"{_PROCESSING}.inputs", "ProcessorInputs", fields=("prompt", "mm_data_items")),
    Need(_PROCESSING, "BaseMultiModalProcessor.apply", ("inputs", "timing_ctx")),
    Need(_PROCESSING, "BaseProcessingInfo.parse_mm_data", ("mm_data",)),
    Need(_PROCESSING, "BaseProcessingInfo.get_tokenizer"),
    Need(_PROCESSING, "BaseDummyInputsBuilder.get_dummy_text", ("mm_counts",)),
)
SAMPLING = (
    Need(
        "vllm",
        "SamplingParams",
        fields=(
            *("stop_token_ids", "allowed_token_ids", "logprob_token_ids", "trace_decode_token_ids", "logit_bias"),
            *("prompt_logprobs", "prompt_logprob_token_ids", "structured_outputs", "repetition_detection"),
            *("thinking_token_budget", "bad_words", "n", "repetition_penalty", "extra_args"),
        ),
    ),
)

NEEDS: tuple[Need, ...] = (*DIGESTS, *FINGERPRINT, *GEOMETRY, *EXAMPLES, *SAMPLING)
