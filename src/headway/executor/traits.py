"""What an executor takes and can do (Traits)."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from headway.core.grammar import Grammar
from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.request import Pooling
from headway.core.settings import Settings
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Traits:
    """What an executor takes and can do. A strategy or request that needs more is refused with the
    executor's name: at load if possible, otherwise before the request is accepted.

    The defaults describe an executor that does everything except adapters and vectors.
    """

    name: str = "this executor"  # as messages call it
    kind: str = "torch"  # as --executor and cost files call it
    block_multiple: int = 1  # a block's tokens must be a multiple of this
    wants_tokens: bool = False  # wants all known tokens of a sequence that begins (Begun.tokens)
    generates: bool = True  # tokens
    logprobs: bool = True  # of generated tokens
    prompt_logprobs: bool = True
    grammars: bool = True
    poolings: tuple[str, ...] = ()  # ways to pool a prompt into a vector, the default first
    exclusive_groups: bool = True  # it computes padding and held slots
    width: int = 0  # dimensions of a pooled vector; 0: unknown before the model is loaded
    splits_prompts: bool = True  # it can compute a prompt in parts, over several steps
    adapters: bool = False  # LoRA adapters
    least_temperature: float = 0.0  # the lowest one above 0
    most_temperature: float = inf
    steps_in_flight: int = 1  # most steps submitted and not yet collected
    drafted: int = 0  # most tokens that a row may add to the one that it samples
    tells_back: bool = False  # it tells when a step is back, so the engine need not block on it

    def check_policies(self, policies: Policies) -> None:
        """Raise SettingError for a strategy that the executor cannot run."""
        if policies.in_groups and not self.exclusive_groups:
            raise SettingError(
                f"{self.name} computes no padding, so it cannot run the groups of "
                f"{type(policies.join).__name__}: use Continuous"
            )
        if not isinstance(policies.chunk, Whole) and not self.splits_prompts:
            raise SettingError(
                f"{self.name} computes a prompt in one step, so it cannot run the chunks of "
                f"{type(policies.chunk).__name__}: use Whole"
            )

    def check_adapters(self, names: Collection[str]) -> None:
        """Raise SettingError for LoRA adapters (by name) if the executor cannot apply any."""
        if names and not self.adapters:
            raise SettingError(
                f"{self.name} applies no LoRA adapters ({', '.join(names)}): use the executor vllm"
            )

    def check(self, settings: Settings) -> None:
        """Raise SettingError for settings that the executor cannot obey."""
        self.check_policies(settings.policies)
        if settings.depth > self.steps_in_flight:
            raise SettingError(
                f"{self.name} takes {self.steps_in_flight} steps at once, not {settings.depth}"
            )
        if settings.depth > 1 and self.drafted:
            raise SettingError(
                f"{self.name} drafts up to {self.drafted} tokens, so the next step is not known "
                f"before the last is back: it takes 1 step at once, not {settings.depth}"
            )
        if settings.block_size % self.block_multiple:
            raise SettingError(
                f"{self.name} takes blocks of a multiple of {self.block_multiple} tokens, not of "
                f"{settings.block_size}"
            )

    def check_pooling(self, pooling: str) -> None:
        """Raise SettingError for a pooling that the executor does not have."""
        if not self.poolings:
            raise SettingError(f"{self.name} makes no vectors of prompts")
        if pooling == Pooling.HEAD and pooling not in self.poolings:
            raise SettingError("the model is not a classifier: it gives no labels")
        if pooling not in self.poolings:
            known = ", ".join(self.poolings)
            raise SettingError(f"{self.name} has no pooling {str(pooling)!r}: it has {known}")

    def refusal(
        self, logprobs: int, prompt_logprobs: int, grammar: Grammar, temperature: float
    ) -> str:
        """Why the executor cannot answer a request with this sampling; empty: it can."""
        if not self.generates:
            return f"{self.name} generates nothing: ask for embeddings, scores or labels"
        if 0 < temperature < self.least_temperature:
            return (
                f"{self.name} samples at a temperature of 0 or from {self.least_temperature} on, "
                f"not at {temperature}"
            )
        if temperature > self.most_temperature:
            return (
                f"{self.name} samples at a temperature of {self.most_temperature} at most, "
                f"not at {temperature}"
            )
        if logprobs >= 0 and not self.logprobs:
            return f"{self.name} gives no log-probabilities"
        if prompt_logprobs >= 0 and not self.prompt_logprobs:
            return f"{self.name} gives no log-probabilities of a prompt"
        if grammar and not self.grammars:
            return f"{self.name} obeys no grammars"
        return ""


EVERYTHING = Traits()
OF_CLASSIFIERS = (Pooling.HEAD,)
OF_DECODERS = (Pooling.LAST, Pooling.MEAN, Pooling.MAX, Pooling.WEIGHTED, Pooling.ROOT)
OURS = Traits("headway's executor", poolings=OF_DECODERS)
HEADLESS = Traits(
    "a model without a language head",
    generates=False,
    logprobs=False,
    prompt_logprobs=False,
    grammars=False,
    poolings=OF_DECODERS,
)
