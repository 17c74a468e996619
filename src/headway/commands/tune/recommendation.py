"""What `headway tune` recommends (Recommendation), and its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from headway.commands.simulate.capacity_text import INTERVAL, Scope, capacity_sentence
from headway.commands.tune.advice.legal_wait import LegalWait
from headway.commands.tune.advice.rule_of_thumb import Rule
from headway.commands.tune.advice.vllm_arguments import VllmArguments
from headway.commands.tune.candidate import Candidate
from headway.commands.tune.live_check import LiveCheck
from headway.commands.tune.trial import Rated, Score
from headway.figures.capacity_interval import ENOUGH_REQUESTS
from headway.report.formatting import duration, tenths

CHOSEN, DEFAULT, FIRST_COME = "recommended", "server's default", "first-come"
UNIT = "requests/s"


@dataclass(frozen=True, slots=True)
class Setting:
    """What was tuned, and on what."""

    about: str  # the model and machine, in words
    traffic: str  # the endpoints and their windows, in words
    seed: int
    rate: float  # the given rate; 0: the search was for the highest
    requests: int  # per window, as asked for
    scope: Scope
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The settings that were found, and the evidence for them."""

    setting: Setting
    candidate: Candidate
    tuned: Rated  # on the tuning windows, which the choice was made by
    plain: Mapping[str, Any]  # the server's configuration, as in its file
    vllm: VllmArguments
    rule: Rule
    waits: tuple[LegalWait, ...] = ()
    held: Mapping[str, Rated] = field(default_factory=dict)  # on held-out windows; empty: unchecked
    others: Mapping[str, Candidate] = field(default_factory=dict)  # the baselines, by name
    simulated: int = 0  # simulated runs of one window each
    live: LiveCheck = LiveCheck("the search was broken off")

    @property
    def is_checked(self) -> bool:
        """Whether it was simulated on the held-out windows."""
        return CHOSEN in self.held

    @property
    def is_kept(self) -> bool:
        """Whether it keeps every lane on the held-out windows (at the given rate, else at some
        rate), and no live check on a quiet machine refutes that."""
        return self.is_checked and self.held[CHOSEN].rate > 0 and not self.live.is_refuted

    def live_lines(self) -> list[str]:
        """The result of the live check in words: first the summary, then each configuration."""
        if self.live.why_not:
            return [f"Not checked live: {self.live.why_not}."]
        each = [f"  {name}: {self.live.said(name)}." for name in self.live.attained]
        return [f"Live: {self.live.about}.", *each]

    @property
    def evidence(self) -> Rated:
        """The result on the held-out windows; before there is one, on the tuning windows."""
        return self.held.get(CHOSEN, self.tuned)

    def headline(self) -> str:
        """The answer in one sentence."""
        text, rate = self.candidate.text, self.setting.rate
        if rate:
            kept = "keeps" if self.evidence.rate else "does not keep"
            where = " on held-out windows" if self.is_checked else " on the tuning windows"
            cost = f"{1e3 * self.evidence.score.cost:.3g} device-ms a request"
            few = self._few(self.evidence)
            return f"{text}: {kept} every lane at {rate:.3g} {UNIT}{where}, with {cost}{few}."
        where = "Held-out windows" if self.is_checked else "Tuning windows, not checked"
        return f"{text}. {where}: {self.said(self.evidence)}."

    def said(self, rated: Rated) -> str:
        """A capacity or a cost in words."""
        few = self._few(rated)
        if self.setting.rate:
            kept = "every lane kept" if rated.rate else "a lane is not kept"
            return f"{kept}; {1e3 * rated.score.cost:.3g} device-ms a request{few}"
        if few:
            return f"{rated.rate:.3g} {UNIT}{few}"
        return capacity_sentence(rated.found, self.setting.scope)

    def _few(self, rated: Rated) -> str:
        """That a rate was kept by too few requests, in words; empty: by enough, or not kept."""
        sure = rated.found.sure
        if not rated.rate or sure.is_enough:
            return ""
        more = ceil(self.setting.requests * 1.1 * ENOUGH_REQUESTS / max(1, sure.counted))
        return (
            f", by too few requests to be sure (n {sure.counted} of {sure.lane}; 95 % needs "
            f"{ENOUGH_REQUESTS}): take --requests {more} or a longer trace"
        )

    def attained(self, score: Score) -> str:
        """The attainment of each lane, in words."""
        each = (f"{lane} {tenths(kept)}" for lane, kept in score.attainment.items())
        return ", ".join(each)

    def rule_text(self) -> str:
        """The rule of thumb, and whether the search agrees with it."""
        rule = self.rule
        agrees = self.candidate.strategy in rule.strategies
        end = "the search agrees" if agrees else f"the search chose {self.candidate.strategy}"
        return f"{rule.text} (docs/strategies.md, {rule.section}); {end}"

    def wait_text(self, each: LegalWait) -> str:
        """A lane's longest legal wait, in words."""
        if not each.limit:
            return f"{each.lane}: no limit"
        wait = duration(each.wait) if each.wait > 0 else "none: a long request is late already"
        return (
            f"{each.lane}: {wait} = {each.limit} {duration(each.budget)} - service "
            f"{duration(each.service)} - running {duration(each.running)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs. Times are milliseconds, rates requests per second."""
        setting = self.setting
        return {
            "headway_tune": 1,
            "machine": setting.about,
            "traffic": setting.traffic,
            "seed": setting.seed,
            "rate": setting.rate or None,
            "recommended": self.candidate.text,
            "config": self.plain,
            "vllm": {"arguments": self.vllm.line, "without": list(self.vllm.without)},
            "tuning": rated_json(self.tuned),
            "held_out": {
                name: {"settings": self._settings_of(name), **rated_json(each)}
                for name, each in self.held.items()
            },
            "longest_legal_wait": {each.lane: each.plain for each in self.waits},
            "rule_of_thumb": {"text": self.rule_text(), "section": self.rule.section},
            "simulated_windows": self.simulated,
            "live": self.live.as_json(),
            "warnings": list(setting.warnings),
        }

    def _settings_of(self, name: str) -> str:
        return (self.candidate if name == CHOSEN else self.others[name]).text


def rated_json(rated: Rated) -> dict[str, Any]:
    """A capacity with its interval, n and attainment, and every rate that was tried."""
    sure = rated.found.sure
    return {
        "capacity": rated.rate,
        INTERVAL: [sure.low, sure.high],
        "n": sure.counted,
        "attainment": rated.score.attainment,
        "at_rate": rated.score.rate,
        "device_ms_per_request": 1e3 * rated.score.cost,
        "tried": [
            {"rate": each.rate, "attainment": dict(each.attainment)}
            for each in rated.found.capacity.tried
        ],
    }
