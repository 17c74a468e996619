"""Check a recommendation on the live model against a simulation of the same requests (LiveCheck).

The live model serves one held-out window, at the given rate or a little below the capacity: at
the capacity itself, a small error of the simulator decides. A baseline serves the same window.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console

from headway.commands.simulate.sweep_point import figures_of
from headway.commands.simulate.sweep_setting import calibration_at
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.site import Setup, Site
from headway.commands.tune.trial import Course, Trial, run_of, run_trial
from headway.costing.calibration import Calibration
from headway.costing.machine import NOISY_CORES, Neighbours, describe_machine
from headway.executor.load import TORCH
from headway.figures.capacity import REQUIRED_ATTAINMENT
from headway.models import display_name
from headway.report.formatting import tenths
from headway.runs.machine_speed import warm_up
from headway.runs.progress import show_progress
from headway.runs.testbed import Testbed
from headway.traffic.prompts import Prompts
from headway.traffic.selection import sample_requests

SHARE = 0.9  # of the held-out capacity: the rate of the check
SAME_MACHINE = ("processor", "cores")


@dataclass(frozen=True, slots=True)
class Attained:
    """What one configuration attains: the share of requests inside their budget, by lane."""

    settings: str  # in words
    simulated: Mapping[str, float]
    live: Mapping[str, float]
    offered: Mapping[str, int]  # requests that count, by lane


@dataclass(frozen=True, slots=True)
class LiveCheck:
    """What configurations attain on the live model and in the simulator, at one rate."""

    why_not: str = ""  # why the check did not run, in words; empty: it ran
    rate: float = 0.0  # requests per second
    seconds: float = 0.0  # of arrivals
    attained: Mapping[str, Attained] = field(default_factory=dict)  # the recommended one first
    others: float = 0.0  # cores that other processes used during the check

    @property
    def broken(self) -> list[str]:
        """The lanes that the live model does not keep with the recommended settings."""
        first = next(iter(self.attained.values()), None)
        live = first.live if first else {}
        return [lane for lane, share in live.items() if share < REQUIRED_ATTAINMENT]

    @property
    def is_refuted(self) -> bool:
        """Whether the check shows that the recommended settings do not keep every lane. A run
        beside other work shows nothing."""
        return bool(self.broken) and self.others <= NOISY_CORES

    @property
    def about(self) -> str:
        """What was served, in words."""
        busy = ""
        if self.others > NOISY_CORES:
            busy = f"; other processes used {self.others:.1f} cores, so this says little"
        kept = "every lane is kept"
        if self.broken:
            kept = f"{', '.join(self.broken)} {'are' if len(self.broken) > 1 else 'is'} not kept"
        return (
            f"{self.rate:.3g} requests/s for {self.seconds:.3g} s of a held-out window: {kept} "
            f"with the recommended settings{busy}"
        )

    def said(self, name: str) -> str:
        """Each lane of one configuration, in words."""
        found = self.attained[name]
        return "; ".join(
            f"{lane} {tenths(share)} (simulated {tenths(found.simulated[lane])}, "
            f"n {found.offered[lane]:,})"
            for lane, share in found.live.items()
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs."""
        if self.why_not:
            return {"why_not": self.why_not}
        return {
            "rate": self.rate,
            "seconds": self.seconds,
            "kept": not self.broken,
            "cores_of_other_processes": self.others,
            "attainment": {
                name: {
                    "settings": each.settings,
                    "simulated": dict(each.simulated),
                    "live": dict(each.live),
                    "n": dict(each.offered),
                }
                for name, each in self.attained.items()
            },
        }


NOT_ASKED = "it was not asked for (--no-live)"


def why_not_live(calibration: Calibration, model: str | None) -> str:
    """Why a live check cannot run here, in words; empty: it can. model: as the user gave it."""
    if calibration.analytical:
        return "the cost file is computed from data sheets"
    if calibration.executor != TORCH:
        return f"the cost file is of the executor {calibration.executor}; it is done with {TORCH}"
    if model is None and calibration.model != display_name(None):
        return "no --model is given"
    here = describe_machine()
    if any(here.get(name) != calibration.machine.get(name) for name in SAME_MACHINE):
        return "the cost file was measured on another machine"
    if here["torch"] == "none":
        return "running a model needs torch: pip install 'headway[torch]'"
    return ""


def check_live(
    live: Testbed,
    course: Course,
    site: Site,
    candidates: Mapping[str, Candidate],
    trial: tuple[float, int],
    console: Console,
) -> LiveCheck:
    """Serve the candidates on the live testbed, and the same requests in the simulator.

    trial: the rate (requests per second), and the index of the window.
    """
    rate, window = trial
    sample = sample_requests(course.windows[window], course.seed, live.context)
    warm_up(live, sample, Prompts(live.text, live.block_size, course.seed))
    work, others, found = course.work(window, rate, live), Neighbours(), dict[str, Attained]()
    for name, candidate in candidates.items():
        setup = site.setup(candidate)
        testbed = _like_simulated(live, course.calibration, setup)
        run = run_of(course, setup, testbed, work)
        with show_progress(console, name, len(work.requests), work.window) as watch:
            figures = figures_of(name, window, run.serve(watch), work, testbed.num_blocks)
        score = run_trial(Trial(course, setup, rate, (window,)))
        lanes = {lane: each for lane, each in figures.lanes.items() if each.offered}
        found[name] = Attained(
            candidate.text,
            score.attainment,
            {lane: each.good / each.offered for lane, each in lanes.items()},
            {lane: each.offered for lane, each in lanes.items()},
        )
    return LiveCheck("", rate, work.window / 1e9, found, others.cores())


def _like_simulated(live: Testbed, calibration: Calibration, setup: Setup) -> Testbed:
    """The testbed with the simulation's number of KV blocks, or its own if it has fewer."""
    blocks = calibration_at(calibration, "slots", setup.slots).num_blocks
    return replace(live, num_blocks=min(live.num_blocks, blocks), cost=calibration.cost)


def live_testbed(calibration: Calibration, model: str | None, slots: int) -> Testbed:
    """Load the model in the way it was calibrated. Raises what loading raises."""
    from headway.runs.live_testbed import load_model, make_corpus_testbed

    loaded = load_model(model, slots, calibration.dtype, calibration.device)
    testbed = make_corpus_testbed(loaded, model)
    testbed.use_threads(calibration.threads)
    return replace(testbed, threads=calibration.threads)
