"""The engine process's options, from the configuration."""

from typing import Any

from headway.server.config.config import ServerConfig


def engine_options(config: ServerConfig) -> dict[str, Any]:
    """The fields of EngineOptions for this configuration."""
    model, engine = config.model, config.engine
    return {
        "model": model.path or None,
        "dtype": model.precision,
        "device": model.device,
        "policies": config.policies,
        "lanes": config.core_lanes,
        "slots": engine.slots,
        "context": engine.context,
        "block_size": engine.tokens_per_block,
        "executor": engine.executor,
        "vllm": engine.vllm,
        "adapters": model.adapters,
        "threads": engine.threads,
        "journal": engine.journal,
        "journal_bytes": engine.journal_bytes,
        "cost": engine.cost,
    }
