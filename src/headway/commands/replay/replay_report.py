"""A replay's report: on a terminal, as JSON, and as report.json with every row."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.commands.replay.change import Change
from headway.commands.replay.rerun import Rerun
from headway.core.cost.features import Features
from headway.core.cost.step_cost import StepCost
from headway.core.ledger import StepRow
from headway.core.request import NEVER, Finish
from headway.core.settings import Settings
from headway.costing.calibration import Calibration
from headway.figures.engine_figures import engine_figures
from headway.figures.lane_figures import lane_figures
from headway.figures.warm_up import without_warm_up
from headway.report import report_json, terminal_tables
from headway.report.formatting import share
from headway.runs.outcome import Outcome
from headway.strategies.strategy import Strategy, policy_as_json

RECORDED, CONTROL, WHAT_IF = "as recorded", "as priced", "what if"
RULES = {
    RECORDED: "the journal's settings and measured times",
    CONTROL: "the journal's settings, every step at its predicted time",
}
FAR = 0.15  # a larger relative error of the predicted time gives a warning
ENDED = {Finish.NOT_YET: "unfinished"}  # the other values are already words


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """One of the runs that the report compares, with its settings."""

    outcome: Outcome
    settings: Settings
    ran_out: int = 0  # answers that used up their recorded part


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The runs side by side, with the notes and warnings that readers need."""

    rerun: Rerun
    calibration: Calibration | None  # None: only the recorded run
    change: Change
    runs: Mapping[str, ReplayedRun]  # RECORDED, then CONTROL and WHAT_IF if there are any

    def print(self, console: Console) -> None:
        """Print the opening lines, latency, engine figures and warnings."""
        terminal_tables.print_notes(console, self.opening)
        outcomes = {name: self.counted(run) for name, run in self.runs.items()}
        latency = {
            name: {lane: lane_figures(outcome, lane) for lane in outcome.offered}
            for name, outcome in outcomes.items()
        }
        console.print()
        if (table := terminal_tables.latency_table(latency)).row_count:
            console.print(table)
        terminal_tables.print_notes(console, terminal_tables.latency_notes(latency))
        engine = {name: engine_figures(outcome) for name, outcome in outcomes.items()}
        console.print()
        console.print(terminal_tables.engine_table(engine))
        terminal_tables.print_notes(console, [terminal_tables.ENGINE_NOTE, *self.counts])
        for warning in self.warnings:
            console.print(Text(warning, style="yellow"))

    def counted(self, run: ReplayedRun) -> Outcome:
        """The part of the run that counts: without the warm-up, as in the comparison."""
        return without_warm_up(run.outcome, self.rerun.recording.warm_up)

    def _left_out(self) -> str:
        warm_up, run = self.rerun.recording.warm_up, self.runs[RECORDED]
        offered = sum(run.outcome.offered.values())
        if not warm_up:
            return f"All {offered} requests count; there was no warm-up."
        some = sum(self.counted(run).offered.values())
        return (
            f"{some} of the {offered} requests count. As in the comparison that recorded them, the "
            f"warm-up is left out: requests that arrived in the first {warm_up / 1e9:.3g} s, and "
            "the steps of that time."
        )

    @property
    def opening(self) -> list[str]:
        """The first lines: what was recorded, what the replay proved, what is left out."""
        recording, recorded = self.rerun.recording, self.runs[RECORDED].outcome
        about, steps = recording.about, len(recorded.steps)
        origin = [str(about[key]) for key in ("model", "dtype", "device") if key in about]
        origin += [f"begun {about['begun']}"] if "begun" in about else []
        lines = [
            f"{recording.name}: {', '.join(origin)}." if origin else f"{recording.name}.",
            f"Replayed: all {steps} steps are identical to the recorded ones, row for row, for "
            f"{len(self.rerun.requests)} requests, and the books balance.",
            self._left_out(),
        ]
        if recording.cut:
            whole = len(recording.records)
            lines.append(f"The last line is cut off and left out; {whole} records are complete.")
        if not recorded.complete:
            lines.append(
                "The journal ends before the run does; unfinished requests count as not served."
            )
        if self.calibration:
            lines += self._rules(self.calibration)
        return lines

    def _rules(self, priced: Calibration) -> list[str]:
        kind = "data sheets" if priced.analytical else "measured steps"
        lines = [
            f"- {CONTROL}: {RULES[CONTROL]} ({priced.model}, {priced.dtype}, {priced.device}, "
            f"from {kind}). The cost model predicts "
            f"{share(self.price_ratio)} of the time that the recorded steps took."
        ]
        if WHAT_IF in self.runs:
            lines.append(
                f"- {WHAT_IF}: {self.change}, with the same cost model. Compare it with "
                f"{CONTROL!r}: the difference between {CONTROL!r} and {RECORDED!r} is the cost "
                "model's error."
            )
        if refused := self.rerun.refused:
            lines.append(
                f"Refused when they came: {refused} of the {len(self.rerun.requests)} requests. "
                "They are refused again in every column: whether other settings would have let "
                "them in is not simulated."
            )
        lines.append(
            "Requests arrive when they arrived and get the tokens they got, even where a client "
            "would have waited for an earlier answer."
        )
        return lines

    @property
    def counts(self) -> list[str]:
        """One line per run: its steps, wasted time, preemptions, recomputed and cached tokens."""
        lines = []
        for name, run in self.runs.items():
            outcome = self.counted(run)
            figures, steps = engine_figures(outcome), outcome.steps
            wasted = sum(row.waste_nanoseconds for row in steps)
            spent = sum(row.nanoseconds for row in steps)
            lines.append(
                f"{name}: {len(steps)} steps, {share(wasted / spent if spent else 0)} of their "
                f"time wasted; {figures.preemptions} preemptions; "
                f"{share(figures.recomputed)} of the tokens recomputed; "
                f"{share(figures.cached)} of the prompt tokens found in the prefix cache."
            )
        return lines

    @property
    def price_ratio(self) -> float:
        """The predicted time of the recorded steps over their measured time."""
        assert self.calibration
        cost, rows = self.calibration.cost, self.runs[RECORDED].outcome.steps
        steps, measured = self.rerun.steps, sum(row.nanoseconds for row in rows)
        prices = [_price(cost, *each) for each in zip(steps, self.rerun.overlapped, strict=True)]
        priced = sum(prices) + _extra_time(cost, rows, steps)
        return priced / measured if measured else 1.0

    @property
    def warnings(self) -> list[str]:
        return (
            [*self._incomplete_answers(), *self._cost_warnings(self.calibration)]
            if self.calibration
            else []
        )

    def _incomplete_answers(self) -> list[str]:
        """A warning about answers of which the journal has only the beginning, if any."""
        incomplete = self.rerun.incomplete
        if not incomplete:
            return []
        kinds = ", ".join(f"{count} {ENDED.get(end, end)}" for end, count in incomplete.items())
        ran_out = [
            f"{run.ran_out} in {name!r}" for name, run in self.runs.items() if name != RECORDED
        ]
        return [
            f"The journal has only the beginning of some answers: {kinds}. They are cancelled when "
            "they were, or when their known tokens run out, which happened to "
            f"{' and '.join(ran_out)}."
        ]

    def _cost_warnings(self, priced: Calibration) -> list[str]:
        lines = [f"The cost file is unreliable: {priced.doubt}."] if priced.doubt else []
        if abs(self.price_ratio - 1) > FAR:
            lines.append(
                f"The cost model predicts {share(self.price_ratio)} of the time that the recorded "
                "steps took: it is from another machine, or this one was disturbed. Do not trust "
                "predicted times; run headway calibrate for a new file."
            )
        if "model" not in self.rerun.recording.about:
            assumed = f"{priced.model} in {priced.dtype}"
            lines.append(f"The journal names no model; {assumed} is assumed.")
        most = max(
            (row.rows for each in self.runs.values() for row in each.outcome.steps), default=0
        )
        if most > priced.slots:
            lines.append(
                f"The cost model was fitted to steps of up to {priced.slots} rows; here are steps "
                f"of {most}, whose times are extrapolated."
            )
        return lines

    @property
    def as_json(self) -> dict[str, Any]:
        """For `--json`. Times in nanoseconds; "never": did not happen; null: too few requests."""
        recording = self.rerun.recording
        return {
            "headway_replay": 1,
            "journal": recording.name,
            "about": dict(recording.about),
            "records": len(recording.records),
            "cut": recording.cut,
            "complete": self.runs[RECORDED].outcome.complete,
            "change": {"strategy": self.change.strategy, "set": dict(self.change.keys)},
            "known_in_part": {
                str(ENDED.get(end, end)): count for end, count in self.rerun.incomplete.items()
            },
            "refused_at_the_door": self.rerun.refused,
            "pricing": self.price_ratio if self.calibration else None,
            "warnings": self.warnings,
            "warm_up_ns": recording.warm_up,
            "runs": {name: _run_json(run, self.counted(run)) for name, run in self.runs.items()},
        }

    def write(self, path: Path) -> None:
        """Write report.json with every row, in the format of a comparison's report."""
        about = {
            key: value for key, value in self.as_json.items() if key not in ("runs", "complete")
        }
        lanes = {lane.name: lane for lane in self.rerun.recording.settings.lanes}
        rules = {**RULES, WHAT_IF: f"{self.change}, every step at its predicted time"}
        runs = {name: (run.outcome,) for name, run in self.runs.items()}
        strategies = [
            Strategy(name, rules[name], run.settings.policies) for name, run in self.runs.items()
        ]
        about["workload"] = {"warm_up_ns": self.rerun.recording.warm_up}
        found = report_json.Report(
            {"headway": __version__, "command": "replay", **about}, lanes, runs
        )
        report_json.write(found, strategies, {}, path)


def _price(cost: StepCost, features: Features, overlapped: bool) -> int:
    """Nanoseconds of a step. overlapped: it was decided while another one was computed. It then
    takes as long as the slower of the device and the host."""
    if not overlapped:
        return cost.predict(features)
    return max(cost.behind_another(features), cost.on_host(features) + cost.behind(features))


def _extra_time(cost: StepCost, rows: Sequence[StepRow], steps: Sequence[Features]) -> int:
    """Extra nanoseconds of steps after a sleep or after prompts, as calibration defines them."""
    more, ready, prompted, slept, since = 0, -1, False, 0, NEVER
    for row, features in zip(rows, steps, strict=True):
        if ready < row.began:
            slept, since = row.began - ready, 0
        more += cost.more(slept, since, prompted and not features.prompts)
        since += 1
        is_last = not row.running and not row.waiting
        ready, prompted = row.began + row.nanoseconds if is_last else NEVER, features.prompts > 0
    return more


def _run_json(run: ReplayedRun, outcome: Outcome) -> dict[str, Any]:
    """A run as JSON. outcome: the part of it that counts."""
    settings = run.settings
    figures = {lane: lane_figures(outcome, lane) for lane in outcome.offered}
    return {
        "policies": policy_as_json(settings.policies),
        "num_blocks": settings.num_blocks,
        "block_size": settings.block_size,
        "steps": len(outcome.steps),
        "latency": {
            lane: {key: "never" if value == NEVER else value for key, value in asdict(each).items()}
            | {"attainment": each.attainment}
            for lane, each in figures.items()
        },
        "engine": engine_figures(outcome).plain,
        "ran_out": run.ran_out,
    }
