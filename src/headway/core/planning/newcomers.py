"""New requests that wait for their promise (Newcomers)."""

from dataclasses import replace

from headway.core.batch import Batch, Event
from headway.core.cost.estimates import Estimates
from headway.core.cost.features import batch_features
from headway.core.lane import Line
from headway.core.planning.outlook import IMAGINED, Outlook
from headway.core.planning.plan import Plan
from headway.core.policies.relegate import Keep
from headway.core.request import NEVER, Request
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings

# A look at the waiting sequences takes about two microseconds for each, and may take a sixteenth of
# the time: where many wait, or steps are short, it is not taken in each step.
LOOK = 16 * 2_000  # nanoseconds of steps between two looks, for each waiting sequence
EVERY = 64  # steps from one look at the lanes to the next, at least
LONG_AGO = -NEVER
BEHIND_LEADER = -1  # instead of a wait: the leader's is not known yet


class Newcomers:
    """Promises each new request its times in the first step that is chosen after it came, in order
    of arrival. Where many wait, this is some steps later, because a look at all of them takes long.
    Where requests start as a group, it is the first step of their group.

    Without a cost model nothing is predicted, and nothing is promised.

    `etas` say when the first token of a request that came now would come, by lane. They are renewed
    at most once in EVERY steps, when there is nothing to do, and with the step after that.
    """

    def __init__(self, estimates: Estimates, settings: Settings) -> None:
        self.estimates = estimates
        self._late: list[Sequence] = []  # promised a late first token, in lanes that refuse these
        self.retune(settings)
        self._new: list[Sequence] = []
        self._waits: dict[Sequence, int] = {}  # nanoseconds after this step
        self.looks_again = False  # a newcomer is left for one of the next steps
        self._events: list[Event] = []
        # By lane: nanoseconds, prompt tokens (the lane's median), when this was predicted, and the
        # prompt tokens that waited then in lanes with a budget, without those of the relegated.
        self.etas: dict[str, tuple[int, int, int, int]] = {}
        self._imagined: dict[str, tuple[int, int]] = {}  # the first two, but after this step
        self._imagined_behind = 0  # the last one
        # The steps of the last looks at the lanes, and at the waiting sequences.
        self._lanes_seen = self._waiting_seen = LONG_AGO

    def retune(self, settings: Settings) -> None:
        """Take over other settings. Only a strategy that relegates refuses late requests."""
        lanes = settings.lanes if settings.policies.relegate != Keep() else ()
        self._refusing = {lane.name for lane in lanes if lane.refuses_late}
        self._late = [each for each in self._late if self._is_late(each)]

    def add(self, sequence: Sequence) -> None:
        """Add a request that has come; without a cost model it is not kept."""
        if self.estimates.is_known:
            self._new.append(sequence)

    def _rarely(self, waiting: int) -> int:
        """Steps from one look at so many waiting sequences to the next."""
        return 1 + LOOK * waiting // max(1, self.estimates.shortest)

    def until_look(self, step: int, waiting: int) -> int:
        """The least number of steps, from this one on, before the next look at the lanes."""
        if not self.estimates.is_known:
            return NEVER
        due = self._lanes_seen + max(EVERY, rarely := self._rarely(waiting))
        left = max(0, due - step)
        # Where many wait, the interval depends on the drift, too.
        return left if rarely < EVERY else min(left, self.estimates.until_look(step))

    def look_ahead(self, plan: Plan) -> None:
        """Predict how long newcomers wait. Called when the step is chosen and has no rows yet."""
        if not self.estimates.is_known:
            return
        grouped, step = plan.policies.in_groups, plan.view.step
        rarely = self._rarely(plan.view.waiting)
        is_due = not (grouped or (plan.shares and step - self._lanes_seen < max(EVERY, rarely)))
        if is_due or (self._new and plan.shares):
            self.estimates.promises.paces.see(plan.view.running, plan.view.now)
        if is_due:
            self._lanes_seen = step if plan.shares else LONG_AGO  # the next step is another state
            self._imagine(plan)
        if not self._new or not plan.shares:
            return
        self._new = [each for each in self._new if not each.ended]
        if grouped:
            self._waits = {each: 0 for each in self._new if each.number in plan.roster.running}
            return
        self._wait_in_line(plan, looks=step - self._waiting_seen >= rarely)
        self.looks_again = len(self._waits) < len(self._new)

    def _wait_in_line(self, plan: Plan, *, looks: bool) -> None:
        """Predict how long each newcomer waits after this step. looks: include those whose prompt
        the step does not complete."""
        later: set[Sequence] = set()
        shares = plan.shares
        for each in self._new:
            if each.awaits_leader:
                if each.leader in self._waits or _is_promised(each.leader):
                    self._waits[each] = BEHIND_LEADER
            elif shares.get(each, 0) >= each.pending:
                self._waits[each] = 0
            elif looks:
                self._waits[each] = 0
                later.add(each)
        if later:
            self._waiting_seen = plan.view.step
            self._waits |= Outlook(plan, plan.view.lines).waits(later)

    def promise(self, batch: Batch, now: int, together: bool) -> None:
        """Make the promises; the step begins now. together: a group is answered when it ends."""
        if not (self._waits or self._imagined):
            return
        estimates = self.estimates
        after = now + estimates.predict(batch_features(batch, estimates.cost.gathering))
        self._publish(after - now, now)
        for sequence, wait in self._waits.items():
            if wait == BEHIND_LEADER:
                wait = self._behind_leader(sequence, after)
            sequence.promise = estimates.promise(sequence, now, after, wait)
        if together:
            self._promise_together()
        for sequence in self._waits:
            estimates.promised(sequence)
            told = sequence.promise.first, sequence.promise.end
            self._events.append(Event(sequence.request.id, promise=told))
            if self._is_refused(sequence):
                self._late.append(sequence)
        self._new = [each for each in self._new if each not in self._waits]
        self._waits = {}

    def _imagine(self, plan: Plan) -> None:
        """Predict the wait of one more request in each lane, as long as the lane's median."""
        promises = self.estimates.promises
        timed = [line for line in plan.view.lines if line.is_timed]
        self._imagined_behind = sum([line.tokens - line.relegated_tokens for line in timed])
        lines: list[Line] = []
        asked: dict[Sequence, str] = {}
        for line in plan.view.lines:
            lane = line.lane.name
            if tokens := promises.prompt(lane):
                request = Request("", (0,) * tokens, 1, plan.view.now, lane)
                sequence = plan.roster.imagined(IMAGINED + len(asked), request)
                line = line.with_imagined(sequence)
                asked[sequence] = lane
            lines.append(line)
        self._imagined = {
            asked[sequence]: (wait, len(sequence.tokens))
            for sequence, wait in Outlook(plan, tuple(lines)).waits(asked).items()
        }
        if not plan.shares:
            self._publish(0, plan.view.now)

    def _publish(self, spent: int, now: int) -> None:
        """Renew `etas`. spent: nanoseconds that this step takes."""
        if self._imagined:
            behind, corrected = self._imagined_behind, self.estimates.promises.wait
            self.etas = {
                lane: (spent + corrected(lane, wait), tokens, now, behind)
                for lane, (wait, tokens) in self._imagined.items()
            }
        self._imagined = {}

    def _behind_leader(self, sequence: Sequence, after: int) -> int:
        """Nanoseconds after this step until a sequence that waits for its leader has its first
        token: a step after the leader's."""
        assert sequence.leader, "it waits for one"
        leader = sequence.leader.promise
        computed = leader.after + leader.wait if leader.first == NEVER else leader.first
        return max(0, computed - after) + self.estimates.shortest

    def _promise_together(self) -> None:
        """Promise each of the group its end: no token is told before the last member has ended."""
        end = max([each.promise.end for each in self._waits])
        for each in self._waits:
            first = end if each.request.max_tokens else each.promise.first
            each.promise = replace(each.promise, first=first, end=end, wait=0)

    def _is_refused(self, sequence: Sequence) -> bool:
        """Whether the request is refused for what it was promised."""
        if not self._is_late(sequence):
            return False
        promise = sequence.promise
        if promise.after + promise.wait > sequence.first_by:
            return True
        return self.estimates.promises.refuses(sequence.request.lane)

    def _is_late(self, sequence: Sequence) -> bool:
        """Whether the request was promised a late first token, and its lane refuses these."""
        is_late = sequence.first_by < sequence.promise.first < NEVER
        return is_late and sequence.request.lane in self._refusing

    def take_late(self) -> list[Sequence]:
        """Requests that wait in a lane that refuses late ones, and whose promised first token is
        later than its limit. Each is returned once."""
        late, self._late = self._late, []
        return [each for each in late if not (each.ended or each.is_started)]

    def take_events(self) -> list[Event]:
        """The events that tell callers their promises. Each is returned once."""
        events, self._events = self._events, []
        return events


def _is_promised(sequence: Sequence | None) -> bool:
    return sequence is not None and sequence.promise.made != NEVER
