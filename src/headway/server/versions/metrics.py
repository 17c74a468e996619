"""What Prometheus reads of versions and of the trial (VersionMetrics)."""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway.rollout.trial import Outcome
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.metrics import merged
from headway.server.versions.in_force import InForce
from headway.server.versions.live_trial import LiveTrial

OVER = [str(each) for each in Outcome if each is not Outcome.RUNNING]


class VersionMetrics(Collector):
    """The metrics of a model's versions: read at each scrape; trials are counted as they end."""

    def __init__(self, in_force: InForce, trial: Callable[[], LiveTrial | None]) -> None:
        self._in_force, self._trial = in_force, trial
        self._families = Families(in_force.replicas.name)
        self.ended = {(each,): 0 for each in OVER}

    def collect(self) -> Iterator[Metric]:
        yield from merged(
            [
                Families(engine).gauge(
                    "headway_version",
                    "Number of the configuration's version in force, as the engine has it.",
                    {(): number},
                )
            ]
            for engine, number in self._in_force.versions.items()
        )
        live = self._trial()
        yield self._families.gauge(
            "headway_trial_version",
            "Number of the version on trial. 0: none is.",
            {(): live.number if live else 0},
        )
        yield self._families.gauge(
            "headway_trial_pairs",
            "Pairs of slices that the trial has judged or learnt from. 0: there is no trial.",
            {(): live.trial.pairs if live else 0},
        )
        watches = list(live.trial.watches) if live else []
        yield self._families.gauge(
            "headway_trial_evidence_ratio",
            "Evidence that a guardrail of the trial is broken, over what is needed, both as "
            "logarithms of e-values. At 1 the version is taken back.",
            {
                (each.lane, each.guardrail.figure): each.evidence / live.trial.needed(each)
                for each in watches
                if live
            },
            ("lane", "figure"),
        )
        yield self._families.counter(
            "headway_trials", "Trials that have ended, by how.", self.ended, ("outcome",)
        )
