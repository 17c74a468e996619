"""vLLM's engine arguments: the user's, and those that headway decides."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from headway.errors import SettingError, did_you_mean, first_line
from headway.executor.torch.memory.memory_plan import Limits
from headway.executor.vllm.adapters import Adapter, adapter_args

# Environment variables of vLLM, set unless the user has set them.
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
# Required values. WorkerExtension is written for the first (V1) model runner. A forked worker would
# inherit the locks of our threads and the ends of our pipes.
NEEDED = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
# Arguments that follow from a headway setting, with that setting's name.
OURS = {
    "model": "the model's path",
    "dtype": "dtype",
    "max_model_len": "context",
    "block_size": "block_size",
    "max_num_seqs": "slots",
    "max_num_batched_tokens": "step_tokens",
    "seed": "each request's seed",
    "enable_lora": "adapters",
    "max_loras": "adapters",
}
# Arguments that would change what headway drives, or that are for parts of vLLM that headway
# replaces (its scheduler, its front with the tokenizer, its metrics): there they would do nothing.
REFUSED = frozenset(
    (
        *("async_scheduling", "enable_chunked_prefill", "enable_prefix_caching"),
        *("scheduler_cls", "scheduling_policy", "worker_cls", "worker_extension_cls"),
        *("skip_tokenizer_init", "logprobs_mode", "max_logprobs"),
        *("disable_hybrid_kv_cache_manager", "max_num_scheduled_tokens", "max_num_active_seqs"),
        *("pipeline_parallel_size", "data_parallel_size", "nnodes"),
        *("prefill_context_parallel_size", "decode_context_parallel_size"),
        *("runner", "convert", "pooler_config", "enable_prompt_embeds", "diffusion_config"),
        *("speculative_config", "spec_method", "spec_model", "spec_tokens", "watermark_config"),
        *("kv_transfer_config", "ec_transfer_config", "enable_sleep_mode"),
        *("kv_offloading_size", "kv_offloading_backend", "kv_sharing_fast_prefill"),
        *("revision", "code_revision", "hf_token", "download_dir", "served_model_name"),
        *("tokenizer", "tokenizer_mode", "tokenizer_revision", "io_processor_plugin"),
        *("override_generation_config", "structured_outputs_config", "stream_interval"),
        *("reasoning_parser", "reasoning_parser_plugin", "reasoning_config"),
        *("max_num_queued_reqs", "max_num_queued_tokens", "prefill_schedule_interval"),
        *("long_prefill_token_threshold", "long_prefill_token_threshold_adaptive"),
        *("scheduler_reserve_full_isl", "watermark", "prefix_caching_hash_algo"),
        *("prefix_cache_retention_interval", "prefix_match_unit", "kv_events_config"),
        *("otlp_traces_endpoint", "collect_detailed_traces", "profiler_config"),
        *("kv_cache_metrics", "kv_cache_metrics_sample", "custom_histogram_buckets"),
        *("data_parallel_rank", "data_parallel_start_rank", "data_parallel_size_local"),
        *("data_parallel_address", "data_parallel_rpc_port", "data_parallel_backend"),
        *("data_parallel_hybrid_lb", "data_parallel_external_lb", "node_rank"),
        *("data_parallel_multi_port_external_lb", "dp_sync_interval"),
        *("disable_log_stats", "aggregate_engine_logging", "enable_logging_iteration_details"),
        *("enable_mfu_metrics", "per_request_spec_decode_metrics", "shutdown_timeout"),
        *("show_hidden_metrics_for_version", "renderer_num_workers", "tokens_only"),
        *("return_sampling_mask", "enable_trace_replay", "enable_batch_sharded_sampling"),
    )
)


def prepare_environment() -> None:
    """Set vLLM's environment variables. Call it before vLLM is imported. Workers read them too."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    os.environ.update(NEEDED)


def engine_args(
    folder: Path,
    limits: Limits,
    dtype: str,
    options: Mapping[str, Any],
    adapters: Sequence[Adapter] = (),
) -> Any:
    """Make vLLM's EngineArgs. Raises SettingError for options that vLLM or headway refuses."""
    from vllm.engine.arg_utils import EngineArgs

    check_options(options, [each.name for each in fields(EngineArgs)])
    if not adapters and (idle := [name for name in options if "lora" in name]):
        raise SettingError(f"vLLM's {idle[0]} does nothing without adapters")
    ours: dict[str, Any] = {
        "model": str(folder),
        "dtype": dtype or "auto",
        "max_model_len": limits.context or None,
        "max_num_seqs": limits.sequences,
        "skip_tokenizer_init": True,
        "async_scheduling": False,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": False,
        "disable_hybrid_kv_cache_manager": True,
        "max_logprobs": 20,
        "use_tqdm_on_load": False,
        "distributed_executor_backend": "mp",  # a worker in this process would block `submit`
        "worker_extension_cls": "headway.executor.vllm.worker.WorkerExtension",
        **adapter_args(adapters),
    }
    if limits.block_size:
        ours["block_size"] = limits.block_size
    try:
        return EngineArgs(**(ours | dict(options)))
    except Exception as error:  # of any kind: vLLM's own words say what is wrong
        raise SettingError(f"vLLM refuses its options: {first_cause(error)}") from error


def check_options(options: Mapping[str, Any], known: list[str]) -> None:
    """Raise SettingError for the first option that cannot be passed on. known: vLLM's names."""
    for name in options:
        if name in OURS:
            raise SettingError(f"vLLM's {name} follows from {OURS[name]}: set that")
        if name in REFUSED:
            raise SettingError(f"vLLM's {name} cannot be set: headway decides it, or lacks it")
        if name not in known or name.startswith("_"):
            raise SettingError(f"vLLM has no option {name!r}{did_you_mean(name, known)}")


def first_cause(error: Exception) -> str:
    """The first line of vLLM's message. For a pydantic error: the last error and its field."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 2 and "validation error" in lines[0]:
        field = f"{lines[-3]}: " if len(lines) > 3 and " " not in lines[-3] else ""
        return field + lines[-2].removeprefix("Value error, ").split(" [type=")[0]
    return first_line(error)
