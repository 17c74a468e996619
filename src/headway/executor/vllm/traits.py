"""What vLLM takes and can do, as far as it is known before it is loaded."""

from headway.executor.traits import Traits

VLLM_TRAITS = Traits(
    "vLLM",
    kind="vllm",
    wants_tokens=True,
    exclusive_groups=False,
    steps_in_flight=2,  # its workers keep what they sample, and read a queue of steps
    adapters=True,
    least_temperature=0.01,  # it would raise lower ones to it
    most_temperature=2.0,  # it refuses higher ones
)
