"""All that a scheduler is made from (Settings)."""

from dataclasses import dataclass

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.order import Priority
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.errors import SettingError


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force. They are the first line of a journal."""

    num_blocks: int
    block_size: int = 16
    lanes: tuple[Lane, ...] = (Lane(),)
    policies: Policies = Policies()
    context: int = NEVER  # tokens that the model can attend to, at most
    cost: StepCost = StepCost()  # of the executor's steps; if unknown, nothing is predicted

    def __post_init__(self) -> None:
        names = [lane.name for lane in self.lanes]
        if not names or len(set(names)) < len(names):
            raise SettingError(f"lanes need distinct names, and at least one: {names}")
        if strange := set(getattr(self.policies.join, "windows", ())) - set(names):
            raise SettingError(f"a window names no lane: {sorted(strange)}; there are {names}")
        widest = max(getattr(self.policies.join, "buckets", ()), default=0)
        self._check_shares()
        for part in ("order", "chunk", "relegate"):
            policy = getattr(self.policies, part)
            if getattr(policy, "needs_cost", False) and not self.cost.is_known:
                raise SettingError(
                    f"{type(policy).__name__} predicts times, and there is no cost model: "
                    "measure one with headway calibrate"
                )
        if widest > self.context:  # held slots would have positions beyond the context
            raise SettingError(
                f"a bucket of {widest} tokens is wider than the {self.context} of the context"
            )

    def _check_shares(self) -> None:
        for each in self.lanes:
            if each.chunk < 1:
                raise SettingError(f"lane {each.name!r} has a chunk of {each.chunk} tokens")
            if each.step_tokens.least:
                raise SettingError(
                    f"lane {each.name!r}: step_tokens has a most and no least; the least of slots "
                    "keeps a lane moving"
                )
        whole = {"slots": self.policies.slots or NEVER, "blocks": self.num_blocks}
        whole["step_tokens"] = self.policies.step_tokens
        for name, most in whole.items():
            shares = {lane.name: getattr(lane, name) for lane in self.lanes}
            if (kept := sum([share.least for share in shares.values()])) > most:
                raise SettingError(f"the lanes keep {kept} {name} at least, and there are {most}")
            for named, share in shares.items():
                if share.most < 1:
                    raise SettingError(
                        f"lane {named!r} has no {name}: nothing of it could ever run"
                    )

    @property
    def by_priority(self) -> bool:
        """Whether lanes go by priority; else all requests wait in one line."""
        return isinstance(self.policies.order, Priority)
