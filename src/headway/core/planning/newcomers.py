"""Requests that have come and wait for their promise (Newcomers)."""

from dataclasses import replace

from headway.core.batch import Batch, Event
from headway.core.cost.estimates import Estimates
from headway.core.cost.features import batch_features
from headway.core.lane import Line
from headway.core.planning.outlook import IMAGINED, Outlook
from headway.core.planning.plan import Plan
from headway.core.policies.relegate import Keep
from headway.core.request import NEVER, Request
from headway.core.sequence import Sequence
from headway.core.settings import Settings

# A look at those who wait takes about two microseconds for each, and may take a sixteenth of the
# time: where they are many, or steps are short, it is not taken in each step.
LOOK = 16 * 2_000  # nanoseconds of steps for each who waits
EVERY = 64  # steps from one look at the lanes to the next, at least
LONG_AGO = -NEVER
BEHIND_LEADER = -1  # instead of a wait: its leader's is not known yet


class Newcomers:
    """Each is promised its times with the first step that is chosen after it came, in the order of
    arrival; where many wait, some steps later, because it takes long to look at them all. Where
    requests start as a group, it is the first step of their group.

    Without a cost model nothing is predicted, and nothing is promised.

    Once in EVERY steps, when there is nothing to do, and with the next step, it is also seen when
    the first token of a request would come that came now, for each lane (`etas`).
    """

    def __init__(self, estimates: Estimates, settings: Settings) -> None:
        self.estimates = estimates
        self._late: list[Sequence] = []  # in lanes that refuse, promised a late first token
        self.retune(settings)
        self._new: list[Sequence] = []
        self._waits: dict[Sequence, int] = {}  # nanoseconds after this step
        self.looks_again = False  # at somebody who came, in one of the next steps
        self._events: list[Event] = []
        # By lane: nanoseconds, prompt tokens (the median of the lane), when that was seen, and the
        # prompt tokens that waited then in lanes with a budget.
        self.etas: dict[str, tuple[int, int, int, int]] = {}
        self._imagined: dict[str, tuple[int, int]] = {}  # the first two, but after this step
        self._imagined_behind = 0  # the last one
        # The steps in which that, and those who wait, were looked at last.
        self._lanes_seen = self._waiting_seen = LONG_AGO

    def retune(self, settings: Settings) -> None:
        """Other settings are in force. Only a strategy that relegates refuses who is late."""
        lanes = settings.lanes if settings.policies.relegate != Keep() else ()
        self._refusing = {lane.name for lane in lanes if lane.refuses_late}
        self._late = [each for each in self._late if self._is_late(each)]

    def add(self, sequence: Sequence) -> None:
        """It has come."""
        if self.estimates.is_known:
            self._new.append(sequence)

    def _rarely(self, waiting: int) -> int:
        """Steps from one look at so many who wait to the next."""
        return 1 + LOOK * waiting // max(1, self.estimates.shortest)

    def until_look(self, step: int, waiting: int) -> int:
        """How many steps, from this one on, come before the next look at the lanes, at least."""
        if not self.estimates.is_known:
            return NEVER
        due = self._lanes_seen + max(EVERY, rarely := self._rarely(waiting))
        left = max(0, due - step)
        # How often depends on the drift, too, where many wait.
        return left if rarely < EVERY else min(left, self.estimates.until_look(step))

    def look_ahead(self, plan: Plan) -> None:
        """See who goes before them. The step is chosen, and its rows are not built yet."""
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
        """How long each waits after this step. looks: also at those that it does not complete."""
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
        """The step begins now. together: the callers of a group are answered when it ends."""
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
        """One more request in each lane, as long as its median."""
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
        """This step takes so many nanoseconds."""
        if self._imagined:
            behind, corrected = self._imagined_behind, self.estimates.promises.wait
            self.etas = {
                lane: (spent + corrected(lane, wait), tokens, now, behind)
                for lane, (wait, tokens) in self._imagined.items()
            }
        self._imagined = {}

    def _behind_leader(self, sequence: Sequence, after: int) -> int:
        """Nanoseconds until a sequence has its first token that waits for its leader's."""
        assert sequence.leader, "it waits for one"
        leader = sequence.leader.promise
        computed = leader.after + leader.wait if leader.first == NEVER else leader.first
        return max(0, computed - after) + self.estimates.shortest

    def _promise_together(self) -> None:
        """Nobody of the group hears of a token before the last of it has ended."""
        end = max([each.promise.end for each in self._waits])
        for each in self._waits:
            first = end if each.request.max_tokens else each.promise.first
            each.promise = replace(each.promise, first=first, end=end, wait=0)

    def _is_refused(self, sequence: Sequence) -> bool:
        """Whether it is refused for what it was promised."""
        if not self._is_late(sequence):
            return False
        promise = sequence.promise
        if promise.after + promise.wait > sequence.first_by:
            return True
        return self.estimates.promises.refuses(sequence.request.lane)

    def _is_late(self, sequence: Sequence) -> bool:
        """Whether it was promised a late first token, and its lane refuses such requests."""
        is_late = sequence.first_by < sequence.promise.first < NEVER
        return is_late and sequence.request.lane in self._refusing

    def take_late(self) -> list[Sequence]:
        """Those that wait in a lane that refuses the late, and whose promised first token is later
        than its limit; each is named once."""
        late, self._late = self._late, []
        return [each for each in late if not (each.ended or each.is_started)]

    def take_events(self) -> list[Event]:
        """What callers are to hear of their promises, once."""
        events, self._events = self._events, []
        return events


def _is_promised(sequence: Sequence | None) -> bool:
    return sequence is not None and sequence.promise.made != NEVER
