"""Everything that a scheduler is made from (Settings)."""

from dataclasses import dataclass, replace
from operator import attrgetter

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.calls import Calls
from headway.core.policies.chunk import Fixed
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
    depth: int = 1  # steps in flight, at most: with 2, one is decided while another is computed
    version: int = 0  # the configuration's number; 0: it has none

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise SettingError(f"a depth of {self.depth} steps computes nothing")
        names = [lane.name for lane in self.lanes]
        if not names or len(set(names)) < len(names):
            raise SettingError(f"lanes need distinct names, and at least one: {names}")
        if strange := set(getattr(self.policies.join, "windows", ())) - set(names):
            raise SettingError(f"a window names no lane: {sorted(strange)}; there are {names}")
        widest = max(getattr(self.policies.join, "buckets", ()), default=0)
        self._check_shares()
        felt = [lane for lane in self.lanes if lane.budget.is_felt_by_the_running]
        if getattr(self.policies.join, "least", 0) and not felt:
            raise SettingError(
                "the size of groups follows the load, and no lane has a ttft, tpot or e2e"
            )
        self._check_windows()
        if (predicting := self.policies.predicting) and not self.cost.is_known:
            raise SettingError(
                f"{predicting[0]} predicts times, and there is no cost model: measure one with "
                "headway calibrate"
            )
        if widest > self.context:  # held slots would have positions beyond the context
            raise SettingError(
                f"a bucket of {widest} tokens is wider than the {self.context} of the context"
            )

    def _check_shares(self) -> None:
        for each in self.lanes:
            if each.chunk < 1:
                raise SettingError(f"lane {each.name!r} has a chunk of {each.chunk} tokens")
            for name in ("blocks", "step_tokens"):
                if getattr(each, name).follows:
                    raise SettingError(
                        f"lane {each.name!r}: {name} cannot follow the load; slots can"
                    )
            if each.slots.follows and not each.budget.is_felt_by_the_running:
                raise SettingError(
                    f"lane {each.name!r} has slots between {each.slots.low} and "
                    f"{each.slots.most}, and no ttft, tpot or e2e that they could follow"
                )
        whole = {"slots": self.policies.slots or NEVER, "blocks": self.num_blocks}
        whole["step_tokens"] = self.policies.step_tokens
        self._check_kept_tokens()
        for name, most in whole.items():
            shares = {lane.name: getattr(lane, name) for lane in self.lanes}
            least = {lane: share.least for lane, share in shares.items() if share.least}
            if (kept := sum(least.values())) > most:
                held = " and ".join([f"{lane} {count}" for lane, count in least.items()])
                raise SettingError(
                    f"the lanes keep {kept} {name} at least ({held}), and there are {most}"
                )
            for named, share in shares.items():
                if share.most < 1:
                    raise SettingError(
                        f"lane {named!r} has no {name}: nothing of it could ever run"
                    )

    def _check_windows(self) -> None:
        """Check that each window that follows the load holds a lane with a budget."""
        own = getattr(self.policies.join, "windows", ())
        for name in getattr(self.policies.join, "lows", ()):
            held = [lane for lane in self.lanes if lane.name == name or not name]
            held = [lane for lane in held if name or lane.name not in own]
            if not any(lane.budget.is_timed for lane in held):
                said = f"lane {name!r} has a window" if name else "there is a window"
                raise SettingError(f"{said} that follows the load, and no budget that it could")

    def _check_kept_tokens(self) -> None:
        """Check the step tokens that lanes keep. Each running sequence has its next token in each
        step, so lanes can keep only the rest of the step."""
        kept = {lane: lane.step_tokens.least for lane in self.lanes if lane.step_tokens.least}
        if not kept:
            return
        policies, size, count = self.policies, self.policies.slots, sum(kept.values())
        if why := policies.no_tokens_kept:
            raise SettingError(f"lane {next(iter(kept)).name!r} keeps step_tokens, and {why}")
        held = " and ".join([f"{lane.name} {least}" for lane, least in kept.items()])
        said = f"the lanes keep {count} step_tokens at least ({held}), and"
        if count + size > policies.step_tokens:
            raise SettingError(
                f"{said} of {policies.step_tokens} there are {policies.step_tokens - size} beside "
                f"one for each of {size} slots"
            )
        if isinstance(policies.chunk, Fixed) and count > policies.chunk.size:
            raise SettingError(f"{said} the prompts of a step have {policies.chunk.size}")
        for lane, least in kept.items():
            if least > (most := lane.chunk + min(size, lane.slots.most)):
                raise SettingError(
                    f"lane {lane.name!r} keeps {least} step_tokens and can use {most} at most: its "
                    f"chunk, and one for each of its slots"
                )

    @property
    def open_slots(self) -> int:
        """As Load.slots."""
        policies = self.policies
        return 0 if policies.in_groups or isinstance(policies.join, Calls) else policies.slots

    def retuned(self, policies: Policies, lanes: tuple[Lane, ...], version: int) -> "Settings":
        """These settings with other policies, lanes and version, while requests are served.

        Raises SettingError for what may not change then, and for settings that do not go together.
        """
        names, wanted = ({lane.name for lane in each} for each in (self.lanes, lanes))
        if names != wanted:
            raise SettingError(
                f"lanes neither come nor go while requests are served: there are {sorted(names)}, "
                f"not {sorted(wanted)}"
            )
        before, after = self.policies, policies
        if isinstance(before.join, Calls) != isinstance(after.join, Calls):
            raise SettingError("a function is served in calls, and a model in steps: join")
        fair = [getattr(each.order, "weights", None) for each in (before, after)]
        if fair[0] != fair[1]:
            raise SettingError(
                "whether tenants share their lanes, and their weights, cannot change while "
                "requests are served"
            )
        listed = {lane.name: lane for lane in lanes}
        ordered = tuple([listed[lane.name] for lane in self.lanes])
        return replace(self, policies=policies, lanes=ordered, version=version)

    @property
    def ranks(self) -> dict[str, tuple[int, int, int]]:
        """By lane: its rank, relegated_rank and due (LaneLoad). Least slots and ageing are left
        out: few requests go first because of them."""
        order, count = self.policies.inner_order, len(self.lanes)
        if not isinstance(order, Priority | ByDeadline):
            return {lane.name: (0, 1, 0) for lane in self.lanes}
        ranks = dict[str, tuple[int, int, int]]()
        for place, lane in enumerate(sorted(self.lanes, key=attrgetter("priority"))):
            if isinstance(order, Priority):
                ranks[lane.name] = place, count + place, 0
            elif lane.budget.is_timed:
                # The tokens after the first count for at most half of the answer's time.
                ranks[lane.name] = 0, 1, min(lane.budget.ttft, lane.budget.e2e // 2)
            else:
                ranks[lane.name] = 2 + place, 2 + place, 0
        return ranks
