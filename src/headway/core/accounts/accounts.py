"""Accounts of time: in which stage each request spent each nanosecond (Accounts).

Nothing is counted for each token. What all requests share - how long a rule has kept a lane
waiting, how long steps have taken, what was computed for each lane - is summed once in a step. A
request notes these sums when a stage of it begins, and takes the difference when the stage ends:

    sums        ... 40 ........ 55 ...... 90        of one lane, under one rule
    a request        |<-- 15 -->|                   it waited here

Only two facts are noted for single requests, and both are rare: a step tried a request and did not
let it in, or left it out although it runs.
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from headway.core.accounts.request_time import RequestTime, Stage
from headway.core.accounts.rules import Rule
from headway.core.accounts.stages import LaneWork, RequestStages
from headway.core.planning.plan import Plan
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.sequences.roster import Roster
from headway.core.sequences.sequence import RELEGATED, Sequence

NEXT_STEP = Rule.NEXT_STEP
QUEUE_STAGES = tuple([rule.stage for rule in Rule])  # by rule


class Flight(NamedTuple):
    """A step that is being computed."""

    scheduled: int  # when it was decided
    left_out: SequenceOf[Sequence]  # running sequences that have no row in it


class LaneSums:
    """What one lane has waited for and what was computed for it, so far."""

    def __init__(self) -> None:
        self.rule = Rule.NEXT_STEP  # the rule that keeps its requests waiting now
        self.waited = [0] * len(Rule)  # nanoseconds under each rule
        self.rows = self.tokens = 0  # in steps


class Accounts:
    """Accounts of all requests of a scheduler, which reports events. `now` never runs back."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._lanes = {name: LaneSums() for name in roster.lines}
        self._pairs = tuple(zip(roster.lines.values(), self._lanes.values(), strict=True))
        self._open: dict[Sequence, RequestTime] = {}
        self._refused: dict[Sequence, Rule] = {}  # tried by the latest step, not let in
        self._flights: deque[Flight] = deque()
        self._policies: Policies | None = None  # of the latest step
        self._in_groups = False  # whether these policies start groups
        self._now = 0  # up to here all time is in the sums
        self._stepped = 0  # nanoseconds of steps that are back
        self._back = 0  # when the last step was back
        self._preemptions = 0
        self._ended: list[RequestStages] = []

    # -- what happens, in its order

    def advance(self, now: int) -> None:
        """Charge the time up to `now` to the rules of the latest step."""
        passed, self._now = now - self._now, now
        if not passed:
            return
        for lane in self._lanes.values():
            lane.waited[lane.rule] += passed
        for sequence, rule in self._refused.items():
            time = self._open.get(sequence)  # it may have been cancelled while a step was in flight
            if time and time.stage is Stage.QUEUE:
                time.add(QUEUE_STAGES[rule], passed)
                time.add(QUEUE_STAGES[self._lanes[sequence.request.lane].rule], -passed)

    def add(self, sequence: Sequence) -> None:
        """Open the account of a request that was taken in and waits."""
        time = self._open[sequence] = RequestTime(self._now)
        time.works = [(lane.rows, lane.tokens) for lane in self._lanes.values()]
        self._begin(sequence, Stage.QUEUE)

    def moved(self, sequences: Iterable[Sequence]) -> None:
        """Change the stage of waiting sequences that were relegated or restored."""
        for sequence in sequences:
            if self._open[sequence].stage in (Stage.QUEUE, Stage.RELEGATED):
                self._turn(sequence, self._waiting_stage(sequence))

    def decided(self, plan: Plan, now: int) -> None:
        """Take in a step that was chosen, or found to be empty. Its rows are not built yet."""
        self.advance(now)
        for sequence in plan.joined:
            self._turn(sequence, Stage.RUN)
        if self._roster.preemptions != self._preemptions:
            self._preemptions = self._roster.preemptions
            self._note_preempted()
        if plan.policies is not self._policies:
            self._policies, self._in_groups = plan.policies, plan.policies.in_groups
        if plan.joins or not plan.start.count:  # in a lull (memory.py), all wait as they did before
            self._note_waiting(plan)
        if plan.shares:
            self._count(plan)

    def came_back(self, now: int, spent: int) -> None:
        """Take in a step that is back. Its shares are not divided yet. spent: its nanoseconds."""
        for sequence in self._flights.popleft().left_out:
            if (time := self._open.get(sequence)) and time.stage is Stage.RUN:
                time.left_out += spent
        self._stepped += spent
        self._back = now
        self.advance(now)

    def first_token(self, sequence: Sequence) -> None:
        """Turn a sequence from prefill to decode. It already has its share of the step."""
        self._turn(sequence, Stage.RUN)

    def withhold(self, sequence: Sequence) -> None:
        """Hold a sequence that has ended by itself while its group has not."""
        self._turn(sequence, Stage.HELD)

    def close(self, sequence: Sequence) -> None:
        """Close the account of a sequence that has ended."""
        self._end(sequence)
        time = self._open.pop(sequence)
        stages = tuple([(name, spent) for name, spent in time.spent.items() if spent])
        self._ended.append(
            RequestStages(sequence.request.id, time.taken_in, stages, tuple(time.before))
        )

    def take(self) -> list[RequestStages]:
        """Return the stages of the requests that have ended since the last call."""
        taken, self._ended = self._ended, []
        return taken

    # -- the sums

    def _count(self, plan: Plan) -> None:
        """Count a step's rows and tokens by lane, and note the sequences that it leaves out."""
        running, shares, lanes = self._roster.running, plan.shares, self._lanes
        if len(shares) == len(running):  # nearly always: all are in the step, most with one token
            self._flights.append(Flight(self._now, ()))
            for line, lane in self._pairs:
                lane.rows += line.running
                lane.tokens += line.running
            if sum(shares.values()) > len(shares):
                for sequence, tokens in shares.items():
                    if tokens != 1:
                        lanes[sequence.request.lane].tokens += tokens - 1
            return
        left_out = [each for each in running.values() if each not in shares and each.pending]
        self._flights.append(Flight(self._now, left_out))
        for sequence, tokens in shares.items():
            lane = lanes[sequence.request.lane]
            lane.rows += 1
            lane.tokens += tokens

    def _note_waiting(self, plan: Plan) -> None:
        """Note what keeps the waiting requests from running."""
        self._refused = plan.refused
        closed, holding = closed_by(plan, in_groups=self._in_groups), plan.limits.holding
        for line, lane in self._pairs:
            if not line.waiting:
                lane.rule = NEXT_STEP
            else:
                lane.rule = Rule.LANE if line.lane.name in holding else closed

    def _note_preempted(self) -> None:
        for sequence, time in self._open.items():
            if time.stage is Stage.RUN and sequence.number not in self._roster.running:
                self._turn(sequence, Stage.PREEMPTED)

    @property
    def _step_time(self) -> int:
        """Nanoseconds of steps up to now, including what has passed of the one in flight."""
        if not self._flights:
            return self._stepped
        return self._stepped + self._now - max(self._flights[0].scheduled, self._back)

    # -- one request's stages

    def _waiting_stage(self, sequence: Sequence) -> Stage:
        return Stage.RELEGATED if sequence.tier == RELEGATED else Stage.QUEUE

    def _turn(self, sequence: Sequence, stage: Stage) -> None:
        """End the sequence's stage now, and begin another."""
        self._end(sequence)
        self._begin(sequence, stage)

    def _begin(self, sequence: Sequence, stage: Stage) -> None:
        time = self._open[sequence]
        time.stage, time.since = stage, self._now
        if stage is Stage.QUEUE:
            time.waited = (*self._lanes[sequence.request.lane].waited,)
        elif stage is Stage.RUN:
            time.begin_run(sequence.nanoseconds, self._step_time, sequence.first_token != NEVER)

    def _end(self, sequence: Sequence) -> None:
        """Add the time that the present stage has taken."""
        time = self._open[sequence]
        passed = self._now - time.since
        if time.stage is Stage.RUN:
            time.end_run(passed, sequence.nanoseconds, self._step_time)
        elif time.stage is Stage.QUEUE:
            now = self._lanes[sequence.request.lane].waited
            for stage, before, after in zip(QUEUE_STAGES, time.waited, now, strict=True):
                if after != before:
                    time.add(stage, after - before)
            self._note_before(time)
        else:
            time.add(time.stage.value, passed)
            if time.stage is Stage.RELEGATED:
                self._note_before(time)

    def _note_before(self, time: RequestTime) -> None:
        """Note what has run since the request came. It has not run itself: else it would wait in
        another stage (PREEMPTED)."""
        works = zip(self._lanes.items(), time.works, strict=True)
        time.before = [
            LaneWork(name, lane.rows - rows, lane.tokens - tokens)
            for (name, lane), (rows, tokens) in works
            if lane.rows > rows
        ]


def closed_by(plan: Plan, *, in_groups: bool) -> Rule:
    """The rule that kept out the waiting requests that the step did not try. in_groups: whether its
    policies start groups."""
    if not plan.joins:
        if not in_groups:
            return Rule.SLOTS
        return Rule.GROUP if plan.roster.running else Rule.WINDOW
    if plan.shares and not plan.kinds.prefill:
        return Rule.STEP
    if plan.places <= 0:
        return Rule.SLOTS
    return Rule.STEP if plan.rest.is_full else Rule.ORDER
