"""vLLM's traits, as far as they are known before it is loaded."""

from headway.executor.traits import Traits

VLLM_TRAITS = Traits(
    "vLLM",
    kind="vllm",
    wants_tokens=True,
    exclusive_groups=False,
    steps_in_flight=2,  # its workers keep the tokens they sample, and read steps from a queue
    adapters=True,
    least_temperature=0.01,  # vLLM would raise a lower one to this
    most_temperature=2.0,  # vLLM refuses a higher one
)
