"""A candidate against the version in force, by slices of time on one engine or two (Trial).

A trial reads no clock and moves nothing. Its caller hands in the time, the arrivals and the
ledger's rows, asks which version should be in force, and obeys. The callers are the server and
benchmarks/trials. Engines are numbered from 0.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import exp, log

from headway.core.ledger import RequestRow
from headway.core.request import NEVER, Finish
from headway.rollout.control import VirtualQueue, best_rate
from headway.rollout.evidence import Evidence, Verdict
from headway.rollout.guardrail import ANY_LANE, FIGURES, NOT_OWN, Guardrail, Seen
from headway.rollout.plan import TrialPlan
from headway.rollout.switchback import Switchback
from headway.rollout.watch import Watch

MOST = 20_000  # requests to remember and learn from, up to the latest judged pair
FITTED = 4_000  # the latest remembered requests, to which the virtual queue's rate is fitted
FAILED = (Finish.REFUSED, Finish.EXPIRED, Finish.ERROR)
TTFT = FIGURES["ttft_p95"][0]


class Outcome(StrEnum):
    """Whether a trial runs, or how it ended."""

    RUNNING = "running"
    TRIPPED = "tripped"  # by a guardrail, a hard stop or an engine's fault: the candidate goes
    ENDED = "ended"  # its time is over, and no guardrail has tripped
    STOPPED = "stopped"  # by an operator


class Trial:
    """One trial, from its first slice to its verdict."""

    def __init__(self, plan: TrialPlan, lanes: Iterable[str], began: int) -> None:
        """began: nanoseconds, on the clock of the arrivals."""
        self.plan, self.lanes, self.began = plan, tuple(lanes), began
        self.times = Switchback(began, plan.slice, plan.wash_out, plan.seed)
        self.verdict = Verdict(Outcome.RUNNING)
        self.pairs = 0  # judged or learnt from
        self.watches = [
            Watch(Guardrail(each.figure, lane, each.allowed), lane)
            for each in plan.guardrails
            for lane in (self.lanes if each.lane == ANY_LANE else (each.lane,))
        ]
        self._weights = sum([watch.weight for watch in self.watches])
        self._seen: dict[str, Seen] = {}  # requests that have not ended, by id
        self._slices: dict[int, list[Seen]] = {}  # requests of slices that are not judged yet
        self._past: deque[Seen] = deque()  # remembered requests, and all that came after them
        self._queue: VirtualQueue | None = None  # None until the traffic has been learnt once
        self._relearn = plan.learning  # pairs after which to learn the traffic again
        self._number = 0
        self._busy = set[str]()  # lanes that had traffic
        self._recent: deque[tuple[int, str, bool]] = deque()  # the candidate's: ended, lane, failed

    # -- what happens

    def arrived(
        self,
        id: str,
        lane: str,
        at: int,
        tokens: int,
        engine: int = 0,
        own: tuple[bool, bool] = NOT_OWN,
    ) -> None:
        """Note a request that was let in."""
        seen = self._add(lane, at, tokens, engine)
        seen.own = own
        if seen.at >= self.began:
            self._seen[id] = seen

    def refused(self, lane: str, at: int, engine: int = 0, own_start: bool = False) -> None:
        """Note a request that was refused at the door. The length of its prompt is not known.
        own_start: its client set the time by which it had to start."""
        if lane in self.lanes:
            self._add(lane, at, 0, engine).refused = True
            if not own_start:
                self._note(at, lane, engine, failed=True)

    def ended(self, row: RequestRow) -> None:
        """Note that a request has ended."""
        if seen := self._seen.pop(row.id, None):
            seen.row = row
            is_own = row.finish is Finish.EXPIRED and seen.own[row.first_scheduled != NEVER]
            if self._is_candidates(seen) and not is_own:
                self._note(row.finished, row.lane, seen.engine, failed=row.finish in FAILED)

    def _is_candidates(self, seen: Seen) -> bool:
        """Whether the request came to the candidate."""
        return self.times.has_candidate(self.times.place(seen.at), seen.engine)

    def _add(self, lane: str, at: int, tokens: int, engine: int) -> Seen:
        seen = Seen(lane, at, tokens, self._number, engine)
        self._number += 1
        if self._queue:
            seen.expected = self._queue.arrive(at, tokens, engine)
        self._past.append(seen)
        self._busy.add(lane)
        if self.times.is_judged(at):
            self._slices.setdefault(self.times.place(at), []).append(seen)
        return seen

    def _note(self, at: int, lane: str, engine: int, *, failed: bool) -> None:
        if self.candidate_in_force(at, engine):
            self._recent.append((at, lane, failed))

    # -- what follows

    def candidate_in_force(self, now: int, engine: int = 0) -> bool:
        """Whether the candidate is to be in force on this engine now."""
        running = self.verdict.outcome == Outcome.RUNNING and now < self._last
        return running and self.times.has_candidate(max(0, self.times.place(now)), engine)

    def next_at(self, now: int) -> int:
        """When the version in force may change next."""
        end = self.times.end(max(0, self.times.place(now)))
        return min(end, self._last) if now < self._last else end

    @property
    def _last(self) -> int:
        """From when on the control alone is in force, while the last requests end."""
        return self.began + self.plan.longest

    def tick(self, now: int, *oldest: Mapping[str, int]) -> None:
        """Judge what can be judged by now. oldest: for each engine, when the first request in each
        lane's line arrived; NEVER or missing: the line is empty."""
        if self.verdict.outcome != Outcome.RUNNING:
            return
        if why := self._broken(now, oldest):
            self._end(Outcome.TRIPPED, why)
            return
        over = self._last + self.plan.settle
        while self.times.end(2 * self.pairs + 1) + self.plan.settle <= min(now, over):
            self._judge(now, oldest)
            if self.verdict.outcome != Outcome.RUNNING:
                return
        if now >= over:
            self._end(Outcome.ENDED, self._untripped())

    def stop(self, why: str, outcome: Outcome = Outcome.STOPPED) -> None:
        """End a running trial for an operator, or for a fault that no guardrail watches."""
        if self.verdict.outcome == Outcome.RUNNING:
            self._end(outcome, why)

    def _broken(self, now: int, oldest: Sequence[Mapping[str, int]]) -> str:
        """Which absolute limit is exceeded, in words; empty: none."""
        limits, recent = self.plan.stop, self._recent
        while recent and recent[0][0] < now - limits.within:
            recent.popleft()
        for lane in self.lanes:
            mine = [failed for _, name, failed in recent if name == lane]
            if len(mine) >= limits.fewest and sum(mine) >= limits.failing * len(mine):
                seconds = limits.within / 1e9
                return (
                    f"lane {lane}: {sum(mine)} of {len(mine)} requests were refused, expired or "
                    f"failed within {seconds:g} s"
                )
            waits = [
                self.times.with_candidate(since, now, engine)
                for engine, each in enumerate(oldest)
                if self.candidate_in_force(now, engine)
                and self.began <= (since := each.get(lane, NEVER)) < now
            ]
            if (longest := max(waits, default=0)) > limits.wait:
                return (
                    f"lane {lane}: its first in line has waited {longest / 1e9:.3g} s under the "
                    f"candidate, more than {limits.wait / 1e9:g} s"
                )
        return ""

    def _judge(self, now: int, oldest: Sequence[Mapping[str, int]]) -> None:
        """Judge the next pair, whose requests have had time to end."""
        place = 2 * self.pairs
        pair = [*self._slices.pop(place, []), *self._slices.pop(place + 1, [])]
        for each in pair:
            waiting = each.at >= oldest[each.engine].get(each.lane, NEVER)
            if each.row is None and not each.refused and waiting:
                each.waits_until = now
        if pair:
            self._forget(min(pair[0].number, pair[-1].number - MOST))
        self.pairs += 1
        if self.pairs >= self._relearn and self._learn_traffic():
            self._relearn = 2 * self.pairs
        elif self._queue:
            for watch in self.watches:
                watch.learn([each for each in pair if each.lane == watch.lane])
        if self.pairs <= self.plan.learning or not self._queue:
            return
        for watch in self.watches:
            control, candidate = list[Seen](), list[Seen]()
            for each in pair:
                if each.lane == watch.lane:
                    (candidate if self._is_candidates(each) else control).append(each)
            watch.see(control, candidate)
        if why := self._tripped():
            self._end(Outcome.TRIPPED, why)

    def _forget(self, first: int) -> None:
        """Drop the arrivals before this number."""
        while self._past[0].number < first:
            self._past.popleft()

    def _learn_traffic(self) -> bool:
        """Fit the virtual queue again to the waits of both versions. False: there are no waits, or
        too few arrivals."""
        past = list(self._past)
        judged = [
            each
            for each in past
            if self.times.is_judged(each.at) and self.times.place(each.at) < 2 * self.pairs
        ]
        end = judged[-1].number + 1 - past[0].number if judged else 0
        latest = past[max(0, end - FITTED) : end]
        first = latest[0].number if latest else 0
        waits = [
            [
                (each.number - first, wait)
                for each in judged
                if each.number >= first and each.lane == lane and (wait := TTFT(each)) is not None
            ]
            for lane in self.lanes
        ]
        if len(latest) < 2 or not any(waits):
            return False
        arrivals = [(each.at, each.tokens, each.engine) for each in latest]
        self._queue = VirtualQueue(best_rate(arrivals, waits))
        for each in past:
            each.expected = self._queue.arrive(each.at, each.tokens, each.engine)
        for watch in self.watches:
            watch.start_over([each for each in judged if each.lane == watch.lane])
        return True

    # -- what it says

    def needed(self, watch: Watch) -> float:
        """The logarithm of the e-value at which this guardrail trips."""
        return log(self._weights / (watch.weight * self.plan.alpha))

    def _tripped(self) -> str:
        for watch in self.watches:
            if watch.pairs >= self.plan.fewest and (watch.evidence >= self.needed(watch)):
                return (
                    f"{watch.guardrail.figure} of lane {watch.lane} is worse: e-value "
                    f"{exp(min(watch.evidence, 99)):.3g} after {watch.pairs} pairs of "
                    f"slices, {exp(self.needed(watch)):.3g} were needed"
                )
        return ""

    def _untripped(self) -> str:
        """Why a trial ends when its time is over. A guardrail with too few pairs could not trip."""
        counted, needed = max([watch.pairs for watch in self.watches]), self.plan.fewest
        if counted >= needed:
            why = "its time is over, and no guardrail has tripped"
            if unjudged := self._unjudged():
                why += f"; not judged, with fewer than {needed} pairs: {', '.join(unjudged)}"
            return why
        return (
            f"its time is over, and no guardrail was judged: {counted} pairs of slices counted, "
            f"{needed} are needed"
        )

    @property
    def is_judged(self) -> bool:
        """Whether there was traffic, and no guardrail of a lane with traffic has too few pairs."""
        mine = [watch.pairs for watch in self.watches if watch.lane in self._busy]
        return min(mine, default=0) >= self.plan.fewest

    def _unjudged(self) -> list[str]:
        """The guardrails with too few pairs, in words: by figure and lane, or all of a lane."""
        found = list[str]()
        for lane in dict.fromkeys([watch.lane for watch in self.watches]):
            mine = [watch for watch in self.watches if watch.lane == lane]
            few = [each.guardrail.figure for each in mine if each.pairs < self.plan.fewest]
            names = [f"{figure} of lane {lane}" for figure in few]
            found += [f"all of lane {lane}"] if len(few) == len(mine) else names
        return found

    def evidence(self) -> list[Evidence]:
        """The evidence on each guardrail so far."""
        return [Evidence.of(watch, self.needed(watch), self.plan.alpha) for watch in self.watches]

    def _end(self, outcome: Outcome, why: str) -> None:
        self.verdict = Verdict(outcome, why, self.pairs, tuple(self.evidence()))
