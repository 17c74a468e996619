"""A candidate as arguments of `vllm serve`, and what vLLM has no argument for.

The arguments are those of vLLM's SchedulerConfig and CacheConfig (docs.vllm.ai). A setting is
translated only if vLLM's argument means the same.
"""

from dataclasses import dataclass

from headway.core.lane import ALL, Lane
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.defer import Nobody
from headway.core.policies.join import Continuous
from headway.core.policies.memory import Now
from headway.core.policies.mix import Mixed
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import Policies
from headway.core.policies.relegate import Keep
from headway.server.config.config import ServerConfig


@dataclass(frozen=True, slots=True)
class VllmArguments:
    """Settings as vLLM arguments, and those that vLLM has no argument for."""

    arguments: tuple[str, ...]
    without: tuple[str, ...]  # what vLLM has no argument for, in words

    @property
    def line(self) -> str:
        """The arguments as on a command line."""
        return " ".join(self.arguments)


def vllm_arguments(config: ServerConfig) -> VllmArguments:
    """Translate the settings into vLLM arguments, as far as vLLM has them."""
    policies, engine = config.policies, config.engine
    arguments = [f"--max-num-seqs {engine.slots}", f"--max-model-len {engine.context}"]
    arguments.append(f"--block-size {engine.block_size}")
    if isinstance(policies.chunk, Whole):
        tokens = max(policies.step_tokens, engine.context)  # vLLM refuses less than one request
        arguments += [f"--max-num-batched-tokens {tokens}", "--no-enable-chunked-prefill"]
    else:
        tokens = policies.step_tokens
        arguments += [f"--max-num-batched-tokens {tokens}", "--enable-chunked-prefill"]
    if isinstance(policies.chunk, Fixed):
        arguments.append(f"--long-prefill-token-threshold {policies.chunk.size}")
    by_priority = isinstance(policies.inner_order, Priority)
    arguments.append(f"--scheduling-policy {'priority' if by_priority else 'fcfs'}")
    return VllmArguments(tuple(arguments), tuple(_without(policies, config.core_lanes)))


def _without(policies: Policies, lanes: tuple[Lane, ...]) -> list[str]:
    order, chunk = policies.inner_order, policies.chunk
    said = []
    if not isinstance(policies.join, Continuous):
        said.append("groups and their windows: vLLM lets requests join between steps")
    if not isinstance(order, FirstCome | Priority):
        said.append(f"the order ({type(order).__name__})")
    if isinstance(order, Priority):
        said.append("the lanes' priorities: each request must carry its own `priority`")
    if isinstance(chunk, Fixed):
        said.append("a chunk of all prompts of a step: its threshold is of each prompt")
    elif not isinstance(chunk, Whole):
        said.append("steps sized by the time that running answers can spare")
    if not isinstance(policies.mix, Mixed):
        said.append("steps of prompts alone")
    if not isinstance(policies.defer, Nobody) or getattr(policies.preempt, "across", False):
        said.append("answers that miss steps, or give slots up, for other lanes")
    if not isinstance(policies.relegate, Keep):
        said.append("late requests behind the others")
    if not isinstance(policies.memory, Now):
        said.append("admission by the memory that answers will need later")
    if any(lane.is_limited or lane.slots != ALL or lane.blocks != ALL for lane in lanes):
        said.append("the lanes' shares")
    if any(lane.budget.is_timed for lane in lanes):
        said.append("the lanes' budgets")
    return said
