"""A strategy (Policies): one policy for each question that a step asks, and its token limit."""

from dataclasses import dataclass

from headway.core.policies.by_slack import BySlack
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.defer import Defer, Nobody
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.memory import Memory, Now
from headway.core.policies.mix import Mix, Mixed
from headway.core.policies.order import FirstCome, Order
from headway.core.policies.preempt import Preempt, Youngest
from headway.core.policies.relegate import Keep, Relegate
from headway.errors import SettingError

CHUNK = 256  # prompt tokens of a mixed step: suits CPUs, and is OpenVINO's default too

WHOLE = 1_024  # tokens of a step of whole prompts: on two cores an eighth faster than 512


@dataclass(frozen=True, slots=True)
class Policies:
    """A batching strategy: one policy for each question that a step asks."""

    join: Join = Continuous(64)
    order: Order = FirstCome()
    mix: Mix = Mixed()
    chunk: Chunk = Whole()
    preempt: Preempt = Youngest()
    defer: Defer = Nobody()
    relegate: Relegate = Keep()
    memory: Memory = Now()
    step_tokens: int = 512  # tokens that a step computes at most, padding aside

    def __post_init__(self) -> None:
        if self.step_tokens < 1:
            raise SettingError(f"step_tokens must be 1 or more, not {self.step_tokens}")
        if not isinstance(self.defer, Nobody) and not isinstance(self.mix, Mixed):
            raise SettingError(
                "who misses a step is considered with its prompts: mix must be Mixed"
            )
        if self.in_groups:
            group = f"{type(self.join).__name__} starts groups, and"
            if getattr(self.preempt, "across", False):
                raise SettingError(f"{group} a group is never preempted: preempt must be Youngest")
            if isinstance(self.chunk, BySlack):
                raise SettingError(f"{group} their padding has no time of its own: not by BySlack")
        if self.step_tokens < self.slots:
            raise SettingError(
                f"step_tokens {self.step_tokens} is less than the {self.slots} sequences that may "
                "run at once: not all of them could get their next token in a step"
            )

    @property
    def slots(self) -> int:
        """How many sequences may run at once; 0: the join policy does not say."""
        size: int = getattr(self.join, "size", 0)
        return size

    @property
    def in_groups(self) -> bool:
        """Whether requests run in exclusive groups, with padding and held slots."""
        if isinstance(self.join, Calls):
            return bool(self.join.bounds)
        return isinstance(self.join, Static | Dynamic | LengthClasses)

    @property
    def no_tokens_kept(self) -> str:
        """Why lanes cannot keep tokens of a step; empty: they can."""
        if self.in_groups or not self.slots:
            return f"join {type(self.join).__name__} has no slots that fill one by one"
        if not isinstance(self.mix, Mixed):
            return f"mix {type(self.mix).__name__} has steps without its prompts or next tokens"
        if not isinstance(self.chunk, Fixed | BySlack):
            return f"chunk {type(self.chunk).__name__} never splits a prompt"
        return ""

    @property
    def goes_by_tier(self) -> bool:
        """Whether the strategy serves sequences of a later tier behind others (Sequence.tier)."""
        across = getattr(self.preempt, "across", False)
        return across or self.defer != Nobody() or self.relegate != Keep()

    @property
    def keeps_leasts(self) -> bool:
        """Whether lanes keep slots and blocks for their first requests (Lane.slots.least)."""
        by_order = getattr(self.inner_order, "keeps_leasts", False)
        return by_order or getattr(self.preempt, "across", False) or self.defer != Nobody()

    @property
    def inner_order(self) -> Order:
        """The order itself, without the fairness within lanes."""
        return self.order.order if isinstance(self.order, Fairly) else self.order

    @property
    def predicting(self) -> tuple[str, ...]:
        """Names of the policies that predict times: they need a cost model."""
        parts = (self.inner_order, self.chunk, self.defer, self.relegate)
        return tuple([type(each).__name__ for each in parts if getattr(each, "needs_cost", False)])

    def cells(self, context: int) -> int:
        """The most cells that one step computes, if no sequence holds more tokens than the context.

        Padding, held slots and a whole prompt that exceeds step_tokens all count. A group's
        rectangle is as wide as its longest row and as high as the group, so step_tokens does not
        bound it (docs/decisions/0015).
        """
        longest = min(context, self.chunk.size) if isinstance(self.chunk, Fixed) else context
        if self.in_groups:
            buckets = getattr(self.join, "buckets", ())
            wider = [bucket for bucket in buckets if bucket >= longest]
            return self.slots * (wider[0] if wider else longest)
        if isinstance(self.chunk, Fixed | BySlack):
            return self.step_tokens
        most = self.step_tokens - 1 + context  # the last prompt starts when one token is left
        return min(most, self.slots * context) if self.slots else most


def whole_prompts(slots: int) -> Policies:
    """The default strategy where a prompt is computed in one step."""
    return Policies(Continuous(slots), chunk=Whole(), step_tokens=max(slots, WHOLE))


def usual(slots: int) -> Policies:
    """The default strategy: a step has every sequence's next token and a chunk of prompts."""
    return Policies(Continuous(slots), chunk=Fixed(CHUNK), step_tokens=slots + CHUNK)
