"""The effect of a change by replay (Replayed): the journal's requests, simulated twice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.commands.diagnose.finding import Trial
from headway.commands.replay.change import Change
from headway.commands.replay.rerun import Rerun
from headway.commands.replay.what_if import what_if
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane, Share
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.figures.warm_up import without_warm_up
from headway.report.formatting import share
from headway.runs.outcome import Outcome

OUTSIDE = "not possible by replay: the cause lies outside what a scheduler decides"
NO_JOURNAL = "not possible from {source}: a what-if run needs a journal (--journal)"


@dataclass(frozen=True, slots=True)
class Replayed:
    """Attainment by lane in two simulated runs of the same requests, at the same step prices.

    Nothing in it is measured. Requests arrive when they did, whatever the earlier answers.
    """

    before: Mapping[str, float]  # the recorded settings
    after: Mapping[str, float]  # with the change
    offered: Mapping[str, int]  # requests with a budget, by lane
    prices: str  # where the step times are from, in words
    cut: int = 0  # requests whose known tokens ran out under the change: they count as missed

    @property
    def words(self) -> str:
        """The result in one sentence."""
        lanes = [
            f"{lane} {share(self.before[lane])} -> {share(self.after[lane])} (n = {count})"
            for lane, count in self.offered.items()
        ]
        worse = "; it makes things worse here" if self.is_worse else ""
        cut = (
            f"; the journal has only the beginning of {self.cut} answers, which count as missed "
            "however soon they come"
            if self.cut
            else ""
        )
        return f"simulated, inside the budget: {', '.join(lanes)}{worse}{cut}; {self.prices}"

    @property
    def is_worse(self) -> bool:
        """Whether fewer requests, over all lanes, are inside their budgets with the change."""
        return (
            sum((self.after[lane] - self.before[lane]) * n for lane, n in self.offered.items()) < 0
        )


def replayed(trial: Trial, rerun: Rerun, cost: StepCost, is_fitted: bool) -> Replayed | str:
    """Replay the change; returns in words why not if there can be no what-if run.

    cost: of the steps. is_fitted: the cost was fitted to the journal's own steps.
    """
    if not trial.can_be_replayed:
        return OUTSIDE
    try:
        settings = simulated_settings(trial, rerun, cost)
        runs = [what_if(rerun, each, cost) for each in (rerun.recording.settings, settings)]
    except SettingError as error:
        return f"not possible by replay: {error}"
    before, after = (without_warm_up(run.outcome, rerun.recording.warm_up) for run in runs)
    offered = {
        lane.name: before.offered[lane.name]
        for lane in rerun.recording.settings.lanes
        if lane.budget.is_timed and before.offered[lane.name]
    }
    prices = "steps fitted to the journal's" if is_fitted else "steps as the cost model prices them"
    cut = sum(row.lane in offered and row.id in runs[1].ran_out for row in after.requests)
    return Replayed(_attainment(before), _attainment(after), offered, prices, cut)


def simulated_settings(trial: Trial, rerun: Rerun, cost: StepCost) -> Settings:
    """The recorded settings with this change."""
    settings = Change(trial.strategy, trial.sets).apply(rerun, cost)

    def changed(lane: Lane) -> Lane:
        fields = dict(trial.lanes.get(lane.name, {}))
        if "slots" in fields:
            fields["slots"] = Share(**fields["slots"])
        return replace(lane, **fields)

    return replace(settings, lanes=tuple(map(changed, settings.lanes)))


def _attainment(outcome: Outcome) -> dict[str, float]:
    return {
        lane: sum(row.good for row in outcome.requests if row.lane == lane) / count
        for lane, count in outcome.offered.items()
        if count
    }
