"""What is said about a replay: to people, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from headway import __version__
from headway.commands.replay.change import Change
from headway.commands.replay.rerun import Relived
from headway.core.cost.features import Features
from headway.core.cost.step_cost import StepCost
from headway.core.ledger import StepRow
from headway.core.request import NEVER, Finish
from headway.core.settings import Settings
from headway.costing.calibration import Calibration
from headway.figures.lane_figures import counted, engine_figures, lane_figures
from headway.report import report, table
from headway.report.words import share
from headway.runs.run import Outcome
from headway.strategies.strategy import Strategy, described

RECORDED, CONTROL, WHAT_IF = "as recorded", "as priced", "what if"
RULES = {
    RECORDED: "the journal's settings, and the times that were measured",
    CONTROL: "the journal's settings, every step at the cost model's price",
}
FAR = 0.15  # by which share priced steps may differ from measured ones before it is a warning
ENDED = {Finish.NOT_YET: "unfinished"}  # the others say it themselves


@dataclass(frozen=True, slots=True)
class Told:
    outcome: Outcome
    settings: Settings
    ran_out: int = 0  # answers that ended because the journal has no more of them


@dataclass(frozen=True, slots=True)
class Retelling:
    relived: Relived
    calibration: Calibration | None  # None: only what was measured
    change: Change
    runs: Mapping[str, Told]  # RECORDED, then CONTROL and WHAT_IF if they were asked for

    def print(self, console: Console) -> None:
        table.print_notes(console, self.opening)
        outcomes = {name: self.counted(told) for name, told in self.runs.items()}
        latency = {
            name: {lane: lane_figures(outcome, lane) for lane in outcome.offered}
            for name, outcome in outcomes.items()
        }
        console.print()
        console.print(table.latency_table(latency))
        table.print_notes(console, table.latency_notes(latency))
        engine = {name: engine_figures(outcome) for name, outcome in outcomes.items()}
        console.print()
        console.print(table.engine_table(engine))
        table.print_notes(console, [table.ENGINE_NOTE, *self.counts])
        for warning in self.warnings:
            console.print(Text(warning, style="yellow"))

    def counted(self, told: Told) -> Outcome:
        """What all figures are of: without the warm-up that the comparison left out too."""
        return counted(told.outcome, self.relived.recording.warm_up)

    def _left_out(self) -> str:
        warm_up, told = self.relived.recording.warm_up, self.runs[RECORDED]
        offered = sum(told.outcome.offered.values())
        if not warm_up:
            return f"No warm-up is left out: all {offered} requests count."
        some = sum(self.counted(told).offered.values())
        return (
            f"The warm-up is left out, as by the comparison that recorded it: {some} of the "
            f"{offered} requests count, without those that arrived in the first "
            f"{warm_up / 1e9:.3g} s. Steps count from there on."
        )

    @property
    def opening(self) -> list[str]:
        recording, recorded = self.relived.recording, self.runs[RECORDED].outcome
        about, steps = recording.about, len(recorded.steps)
        said = [str(about[key]) for key in ("model", "dtype", "device") if key in about]
        said += [f"begun {about['begun']}"] if "begun" in about else []
        lines = [
            f"{recording.name}: {', '.join(said)}." if said else f"{recording.name}.",
            f"Replayed: all {steps} of its steps came out as they were recorded, with the same "
            f"rows for the {len(self.relived.requests)} requests, and the books balance.",
            self._left_out(),
        ]
        if recording.cut:
            whole = len(recording.records)
            lines.append(f"Its last line is cut off and left out: {whole} records are whole.")
        if not recorded.complete:
            lines.append("It ends before its run does: what had not ended counts as not served.")
        if self.calibration:
            lines += self._rules(self.calibration)
        return lines

    def _rules(self, priced: Calibration) -> list[str]:
        kind = "data sheets" if priced.analytical else "measured steps"
        lines = [
            f"- {CONTROL}: {RULES[CONTROL]} ({priced.model}, {priced.dtype}, {priced.device}, "
            f"from {kind}). The recorded steps are priced at {share(self.pricing)} of what they "
            "took."
        ]
        if WHAT_IF in self.runs:
            lines.append(
                f"- {WHAT_IF}: {self.change}, at the same prices. Compare it with {CONTROL!r}: "
                f"what parts {CONTROL!r} from {RECORDED!r} is the prices' doing."
            )
        lines.append(
            "Requests come when they came and are given the tokens they were given; nobody asks "
            "earlier or later because an answer came earlier or later."
        )
        return lines

    @property
    def counts(self) -> list[str]:
        lines = []
        for name, told in self.runs.items():
            outcome = self.counted(told)
            made, steps = engine_figures(outcome), outcome.steps
            wasted = sum(row.waste_nanoseconds for row in steps)
            spent = sum(row.nanoseconds for row in steps)
            lines.append(
                f"{name}: {len(steps)} steps, {share(wasted / spent if spent else 0)} of their "
                f"time waste; {made.preemptions} preemptions, {share(made.recomputed)} of the "
                f"tokens computed again, {share(made.cached)} of the prompts' found in the "
                "prefix cache."
            )
        return lines

    @property
    def pricing(self) -> float:
        """The cost model's price of the very steps that were recorded, over what they took."""
        assert self.calibration
        cost, rows = self.calibration.cost, self.runs[RECORDED].outcome.steps
        steps, measured = self.relived.steps, sum(row.nanoseconds for row in rows)
        priced = sum(map(cost.predict, steps)) + _more(cost, rows, steps)
        return priced / measured if measured else 1.0

    @property
    def warnings(self) -> list[str]:
        return (
            [*self._unfollowed(), *self._mistrusted(self.calibration)] if self.calibration else []
        )

    def _unfollowed(self) -> list[str]:
        """Answers of which the journal knows only the beginning."""
        broken = self.relived.broken
        if not broken:
            return []
        kinds = ", ".join(f"{count} {ENDED.get(end, end)}" for end, count in broken.items())
        ran_out = [
            f"{told.ran_out} in {name!r}" for name, told in self.runs.items() if name != RECORDED
        ]
        return [
            f"Answers of which the journal has only the beginning: {kinds}. They are cancelled "
            "when they were, or where their known tokens end, which ended "
            f"{' and '.join(ran_out)}."
        ]

    def _mistrusted(self, priced: Calibration) -> list[str]:
        lines = [f"The prices are not to be believed: {priced.doubt}."] if priced.doubt else []
        if abs(self.pricing - 1) > FAR:
            lines.append(
                f"The recorded steps are priced at {share(self.pricing)} of what they took: the "
                "cost file is of another machine, or that one was not itself. Times that were "
                "not measured mean little; headway calibrate makes a new file."
            )
        if "model" not in self.relived.recording.about:
            said = f"{priced.model} in {priced.dtype}"
            lines.append(f"The journal names no model: that it was {said} is taken on trust.")
        most = max(
            (row.rows for each in self.runs.values() for row in each.outcome.steps), default=0
        )
        if most > priced.slots:
            lines.append(
                f"The cost model was fitted to steps of up to {priced.slots} answers; "
                f"here are steps of {most}, and their price is a guess."
            )
        return lines

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON. Times are nanoseconds; "never": it did not happen; null: too few to say."""
        recording = self.relived.recording
        return {
            "headway_replay": 1,
            "journal": recording.name,
            "about": dict(recording.about),
            "records": len(recording.records),
            "cut": recording.cut,
            "complete": self.runs[RECORDED].outcome.complete,
            "change": {"strategy": self.change.strategy, "set": dict(self.change.keys)},
            "known_in_part": {
                str(ENDED.get(end, end)): count for end, count in self.relived.broken.items()
            },
            "pricing": self.pricing if self.calibration else None,
            "warnings": self.warnings,
            "warm_up_ns": recording.warm_up,
            "runs": {name: _plain(told, self.counted(told)) for name, told in self.runs.items()},
        }

    def write(self, path: Path) -> None:
        """Every row, as the reports of all comparisons have them."""
        about = {key: value for key, value in self.plain.items() if key not in ("runs", "complete")}
        lanes = {lane.name: lane for lane in self.relived.recording.settings.lanes}
        rules = {**RULES, WHAT_IF: f"{self.change}, every step at the cost model's price"}
        runs = {name: (told.outcome,) for name, told in self.runs.items()}
        strategies = [
            Strategy(name, rules[name], told.settings.policies) for name, told in self.runs.items()
        ]
        about["workload"] = {"warm_up_ns": self.relived.recording.warm_up}
        found = report.Report({"headway": __version__, "command": "replay", **about}, lanes, runs)
        report.write(found, strategies, {}, path)


def _more(cost: StepCost, rows: Sequence[StepRow], steps: Sequence[Features]) -> int:
    """Nanoseconds that steps take for what was before them, told apart as calibrating does."""
    more, ready, prompted = 0, -1, False
    for row, features in zip(rows, steps, strict=True):
        if ready < row.began:
            more += cost.wake
        elif prompted and not features.prompts:
            more += cost.turn
        is_last = not row.running and not row.waiting
        ready, prompted = row.began + row.nanoseconds if is_last else NEVER, features.prompts > 0
    return more


def _plain(told: Told, outcome: Outcome) -> dict[str, Any]:
    """outcome: what its figures are of."""
    settings = told.settings
    figures = {lane: lane_figures(outcome, lane) for lane in outcome.offered}
    return {
        "policies": described(settings.policies),
        "num_blocks": settings.num_blocks,
        "block_size": settings.block_size,
        "steps": len(outcome.steps),
        "latency": {
            lane: {key: "never" if value == NEVER else value for key, value in asdict(each).items()}
            | {"attainment": each.attainment}
            for lane, each in figures.items()
        },
        "engine": engine_figures(outcome).plain,
        "ran_out": told.ran_out,
    }
