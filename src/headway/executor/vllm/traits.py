"""What vLLM takes and can do, as far as it is known before it is loaded."""

from headway.executor.traits import Traits

VLLM_TRAITS = Traits(
    "vLLM",
    kind="vllm",
    wants_tokens=True,
    exclusive_groups=False,
    least_temperature=0.01,  # it would raise lower ones to it
)
