"""The bodies of /v1/versions, and the values that they become."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.rollout.guardrail import ANY_LANE, EVERYWHERE, Guardrail
from headway.rollout.plan import HardStop, TrialPlan
from headway.rollout.proposal import Expectation, Proposal
from headway.server.config.durations import Duration


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise SettingError("a text has no NUL character: PostgreSQL cannot keep it")
    return text


Text = Annotated[str, Field(max_length=2_000), AfterValidator(_without_nul)]
Share = Annotated[float, BeforeValidator(lambda value: float(value))]
PLAN, STOP = TrialPlan(), HardStop()
LEAST_SLICE = 10_000_000  # nanoseconds; engines change versions between steps, in milliseconds
LEAST_ALPHA = 1e-12  # its e-values are finite


class Strict(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class ExpectsBody(Strict):
    """The gain that is expected."""

    figure: str
    lane: str
    change: Annotated[float, Field(description="-0.15: 15 % less; of a share, 15 points less.")]


class GuardrailBody(Strict):
    """What must not become worse."""

    figure: str
    lane: str = ANY_LANE
    allowed: float = 0.0


class RollbackBody(Strict):
    """Limits that take the version back at once."""

    failing: float = STOP.failing
    fewest: int = STOP.fewest
    within: Duration = STOP.within
    wait: Duration = NEVER


class ProposeBody(Strict):
    """The body of POST /v1/versions."""

    model: Annotated[str, Field(description="Its own name. Default: the first one.")] = ""
    config: Annotated[
        dict[str, Any],
        Field(description="Changes of `engine` (strategy, slots, step_tokens) and of `lanes`."),
    ]
    author: Annotated[Text, Field(description="Default: the key's name.")] = ""
    reason: Text
    expects: ExpectsBody | None = None
    pressure: Annotated[Text, Field(description="What it may make worse.")] = ""
    owner: Annotated[Text, Field(description="Who answers for that.")] = ""
    guardrails: Annotated[list[GuardrailBody], Field(max_length=64)] = []
    rollback: RollbackBody = RollbackBody()

    def proposal(self, config: dict[str, Any], author: str, model: str) -> Proposal:
        """The proposal that the body makes. config: all values of the version. author: if the body
        has none. model: the version's. Raises SettingError."""
        expects = self.expects
        own = tuple([Guardrail(each.figure, each.lane, each.allowed) for each in self.guardrails])
        stop = self.rollback
        return Proposal(
            config=config,
            author=self.author or author,
            reason=self.reason,
            expects=Expectation(expects.figure, expects.lane, expects.change) if expects else None,
            pressure=self.pressure,
            owner=self.owner,
            guardrails=own or EVERYWHERE,
            rollback=HardStop(stop.failing, stop.fewest, stop.within, stop.wait),
            model=model,
        )


class StartBody(Strict):
    """The body of POST /v1/versions/{number}/start."""

    slice: Duration = PLAN.slice
    wash_out: Duration = PLAN.wash_out
    longest: Duration = PLAN.longest
    settle: Duration = PLAN.settle
    learning: Annotated[int, Field(ge=1)] = PLAN.learning
    fewest: Annotated[int, Field(ge=1)] = PLAN.fewest
    alpha: float = PLAN.alpha
    seed: Annotated[int | None, Field(description="Of the order. Default: drawn.")] = None
    promote_if_better: bool = False
    share: Annotated[
        float | None,
        Field(description="Of the traffic, for each version. Default: that of one replica."),
    ] = None
    sticky: Annotated[
        Literal["workflow", "tenant", "request"] | None,
        Field(description="What keeps its replica. Default: a workflow."),
    ] = None

    def plan(self, proposal: Proposal, seed: int, engines: int) -> TrialPlan:
        """The trial's plan. seed: used if the body has none. engines: how many are compared. Raises
        SettingError."""
        if self.slice < LEAST_SLICE:
            raise SettingError(f"slice is {LEAST_SLICE // 10**6} ms or more")
        if self.alpha < LEAST_ALPHA:
            raise SettingError(f"alpha is {LEAST_ALPHA:g} or more, not {self.alpha:g}")
        rails, expects = proposal.guardrails, proposal.expects
        if self.promote_if_better and not expects:
            raise SettingError("promote_if_better: the version expects no gain")
        if expects and not any(
            each.figure == expects.figure and each.lane in (ANY_LANE, expects.lane)
            for each in rails
        ):
            rails = (*rails, Guardrail(expects.figure, expects.lane))
        return TrialPlan(
            slice=self.slice,
            wash_out=self.wash_out,
            longest=self.longest,
            settle=self.settle,
            learning=self.learning,
            fewest=self.fewest,
            alpha=self.alpha,
            seed=seed if self.seed is None else self.seed,
            engines=engines,
            guardrails=rails,
            stop=proposal.rollback,
        )


class WhyBody(Strict):
    """The body of POST /v1/versions/{number}/promote, rollback and reject."""

    why: Text = ""
