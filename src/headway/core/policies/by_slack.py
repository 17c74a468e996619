"""Steps sized by the time that running sequences can spare (BySlack)."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from headway.core.policies.chunk import Ahead, Allowance
from headway.core.request import NEVER
from headway.core.sequences.sequence import TIMED, due_before, next_times
from headway.core.view import View
from headway.errors import SettingError

LOST = 16  # gaps behind; such a sequence will hardly catch up, and no step is made short for it


@dataclass(frozen=True, slots=True)
class BySlack:
    """Let a step take no longer than the least time that any decoding sequence can spare.

    A sequence whose tokens came early has slack for another one's long prompt. The slack is from
    Niyama (2025). Prompts are packed into it until it is used up; dynamic SplitFuse
    (DeepSpeed-FastGen, 2023) does so with a fixed number of tokens.
    """

    needs_cost: ClassVar[bool] = True
    least: int = 32  # prompt tokens of a step, however little time there is
    stretch: int = 20  # the longest that a step may take, in steps of one token
    sure: float = 0.9  # share of the steps that are to keep to their time
    # By this share, rows of later tiers may lengthen a step with prompts of requests in time, which
    # wait for its end.
    filler: float = 0.05
    brisk: int = 4  # steps of one token: requests that may come make no step shorter than this

    def __post_init__(self) -> None:
        if (
            min(self.least, self.stretch, self.brisk) < 1
            or not 0 < self.sure <= 1
            or self.filler < 0
        ):
            raise SettingError(
                "least, stretch and brisk must be 1 or more, sure a share, filler 0 or more: "
                f"{self}"
            )

    def allow(self, view: View) -> Allowance:
        now, fastest = view.now, view.estimates.prompt_alone(self.least + 1)
        most = self._longest(view)
        due = helped = min([now + most, *self._expected(view, most)])
        hurried = due_before(view.running, due)
        for sequence, next_by in zip(hurried, next_times(hurried), strict=True):
            if next_by < helped and now - LOST * sequence.tpot < next_by:
                due = min(due, next_by)
                if sequence.tpot > fastest:
                    helped = next_by
        least = self.least if due == helped else self._prompt_tokens(view, helped - now)
        return Allowance(NEVER, True, max(0, due - now), least, self.sure, self.filler)

    def _longest(self, view: View) -> int:
        """The longest that a step may take, in nanoseconds. A request that comes meanwhile waits
        for its end. So the step leaves each lane's median prompt the time to keep the lane's TTFT,
        and a quarter of the remaining time for what cannot be foreseen."""
        estimates, prompt = view.estimates, view.estimates.promises.prompt
        least, most = self.brisk * estimates.shortest, self.stretch * estimates.shortest
        for line in view.lines:
            lane, ttft = line.lane, line.lane.budget.ttft
            if not line.relegates:
                continue
            # If even the lane's longest has the time, the median is not looked up.
            if 3 * (ttft - estimates.prompt_alone(max(self.least, line.longest))) < 4 * most:
                own = estimates.prompt_alone(prompt(lane.name) or self.least)
                if own < ttft:
                    most = min(most, max(least, 3 * (ttft - own) // 4))
        return most

    def _expected(self, view: View, most: int) -> list[int]:
        """First-token deadlines of waiting requests that must be met within `most` nanoseconds and
        still can. Only the first of each line is looked at, if it came within as many."""
        now, estimates = view.now, view.estimates
        heads = [line.waiting[0] for line in view.lines if line.waiting and line.relegates]
        return [
            head.first_by
            for head in heads
            if head.first_seen == NEVER
            and now - head.request.arrived <= most
            and head.first_by < now + most
            and now + estimates.first_token(head) <= head.first_by
        ]

    def _prompt_tokens(self, view: View, nanoseconds: int) -> int:
        """How many prompt tokens fit beside the decodes in a step of this time, at least `least`.

        A budget may ask for tokens faster than a step with `least` prompt tokens takes. Then each
        step with a prompt breaks that budget, a short one as surely as a long one. So the step is
        as long as all other sequences can spare.
        """
        starts = [s.scheduled for s in view.running if len(s.tokens) - s.scheduled == 1]
        estimates, least = view.estimates, self.least
        token = (estimates.prompt_alone(least + 1) - estimates.shortest) / least
        spare = nanoseconds - estimates.decoding(len(starts), sum(starts))
        return max(least, int(spare / token)) if token > 0 else least

    def ahead(self, view: View) -> Ahead:
        """As `allow`, but the sequences are read only once: with each token, all those of one TPOT
        gain the same time."""
        dues: defaultdict[int, list[int]] = defaultdict(list)  # by TPOT
        decoding = [s for s in view.running if s.tier == TIMED and s.first_seen != NEVER]
        for sequence, next_by in zip(decoding, next_times(decoding), strict=True):
            dues[sequence.tpot].append(next_by)
        by_tpot = [(tpot, sorted(times)) for tpot, times in dues.items() if tpot != NEVER]

        def spare(step: int, now: int) -> int:
            most = self._longest(view)
            for tpot, times in by_tpot:
                gained = (step - 1) * tpot
                first = bisect_right(times, now - gained - LOST * tpot)
                if first < len(times):
                    most = min(most, times[first] + gained - now)
            return max(0, most)

        return spare
