"""DeviceTime: puts every nanosecond since the engine was ready into an account of a minute."""

from collections.abc import Iterable, Sequence

from headway.core.ledger import RequestRow, StepRow
from headway.core.load import Load
from headway.store.ledger.flush import MINUTE, Account, MinuteKey, MinutePart

MOST_PARTS = 20_000  # parts in memory; beyond this they are joined into one unrecorded interval
# Looked up several times per step, which is faster here than in the class.
REQUESTS, WASTE, IDLE = Account.REQUESTS, Account.WASTE, Account.IDLE
OPEN, UNRECORDED = Account.OPEN, Account.UNRECORDED


class DeviceTime:
    """Divides time into accounts as steps and requests end. Times are Unix nanoseconds.

    step     |-- waste --|------------- open -------------|        |-- waste --|-- open --|
    between                                               | idle   |

    When a row is kept, its request's share moves from `open` to `requests`, in the current minute,
    so that rows and accounts are written together.
    """

    def __init__(self, epoch: int) -> None:
        """epoch: Unix nanoseconds at the zero of the engine's clock."""
        self._epoch = epoch
        self.started = False  # whether an engine has been ready
        self.until = 0  # all time from that moment up to here is in an account
        self._open = 0  # shares of requests without a row
        self._ended = 0  # the part of `_open` whose requests have ended, but have no row yet
        self._parts: dict[MinuteKey, MinutePart] = {}
        self._minute = 0  # the minute of the latest addition
        self._latest: dict[tuple[Account, str], MinutePart] = {}  # cache of that minute's parts

    def shift(self, by: int) -> None:
        """Move the zero of the engine's clock, before any time is in an account."""
        self._epoch += by
        if self.until:
            self.until += by

    def begin(self, now: int) -> None:
        """Start with a ready engine. The time since its predecessor's last message is lost."""
        if self.started:
            self.lose(now)
        self.started, self.until = True, max(self.until, now)

    def wait(self, now: int) -> None:
        """Let time pass without an account until an engine has been ready."""
        if not self.started:
            self.until = max(self.until, now)

    def lose(self, now: int) -> None:
        """Handle an engine's failure: the time since its last message, and the shares of requests
        that will not end, become unrecorded."""
        running, passed = self._open - self._ended, max(0, now - self.until)
        if running or passed:
            self._add(UNRECORDED, self.until, passed + running)
            self._add(OPEN, self.until, -running)
        self.until, self._open = max(self.until, now), self._ended

    def rows(self, steps: Iterable[StepRow], ended: Iterable[RequestRow], load: Load) -> None:
        """Account for steps and the requests that ended in them. load: the lanes at that time."""
        for step in steps:
            self._step(step, load)
        self._ended += sum([row.nanoseconds for row in ended])

    def keep(self, nanoseconds: int, lane: str) -> int:
        """Account for an ended request whose row is kept. Returns the minute with its time."""
        self._settle(nanoseconds, REQUESTS, lane)
        return self.until // MINUTE

    def drop(self, nanoseconds: int) -> None:
        """Account for an ended request whose row is not kept."""
        self._settle(nanoseconds, UNRECORDED)

    def _settle(self, nanoseconds: int, account: Account, lane: str = "") -> None:
        self._open -= nanoseconds
        self._ended -= nanoseconds
        self._add(OPEN, self.until, -nanoseconds)
        self._add(account, self.until, nanoseconds, lane).requests += 1

    def _step(self, step: StepRow, load: Load) -> None:
        began = self._epoch + step.began
        end = began + step.nanoseconds
        self._pass_idle(began)
        wasted = 0
        for at, passed in pieces(began, end):
            so_far = at + passed - began
            waste = step.waste_nanoseconds * so_far // step.nanoseconds - wasted
            wasted += waste
            if waste:
                self._add(WASTE, at, waste)
            self._add(OPEN, at, passed - waste)
        self._open += step.nanoseconds - step.waste_nanoseconds
        self.until = end
        part = self._add(OPEN, end, 0)
        part.steps += 1
        part.rows += step.rows
        for name, lane in load.lanes.items():
            if lane.batch:
                mine = self._add(REQUESTS, end, 0, name)
                mine.steps += 1
                mine.rows += lane.batch

    def idle(self, now: int) -> None:
        """Count the time up to now as idle. The engine did nothing since its last step."""
        if self.started and now > self.until:
            self._pass_idle(now)
            self.until = now

    def _pass_idle(self, now: int) -> None:
        """Count the time up to now as idle. If a step turns out to have begun during counted idle
        time, take that time back."""
        if now < self.until:
            self._add(IDLE, now, now - self.until)
        for at, passed in pieces(self.until, now):
            self._add(IDLE, at, passed)

    def take(self) -> tuple[dict[MinuteKey, MinutePart], int, int]:
        """The parts added since the last call, their nanoseconds in all, and those of `open`."""
        taken, self._parts, self._latest = self._parts, {}, {}
        total = sum([part.nanoseconds for part in taken.values()])
        open = sum([p.nanoseconds for key, p in taken.items() if key.account is OPEN])
        return taken, total, open

    def _add(self, account: Account, at: int, nanoseconds: int, lane: str = "") -> MinutePart:
        """Add to a part, and return it. Called several times per step, nearly always for the same
        minute as the call before."""
        if (minute := at // MINUTE) != self._minute:
            self._minute, self._latest = minute, {}
        part = self._latest.get((account, lane))
        if part is None:
            part = self._latest[account, lane] = self._part(MinuteKey(minute, account, lane))
        part.nanoseconds += nanoseconds
        return part

    def _part(self, key: MinuteKey) -> MinutePart:
        part = self._parts.get(key)
        if part is None:
            if len(self._parts) >= MOST_PARTS:
                self._join()
            part = self._parts.setdefault(key, MinutePart())
        return part

    def _join(self) -> None:
        """Join the parts into one unrecorded interval to save memory. Time of `requests` stays in
        the minutes that their rows name, and open time stays open."""
        first = min(self._parts).minute
        kept = (REQUESTS, OPEN)
        lost = sum([p.nanoseconds for key, p in self._parts.items() if key.account not in kept])
        opened = sum([p.nanoseconds for key, p in self._parts.items() if key.account is kept[1]])
        self._parts = {k: p for k, p in self._parts.items() if k.account is REQUESTS}
        self._parts[MinuteKey(first, UNRECORDED)] = MinutePart(lost)
        self._parts[MinuteKey(first, OPEN)] = MinutePart(opened)
        self._latest.clear()


def pieces(began: int, end: int) -> Sequence[tuple[int, int]]:
    """An interval minute by minute: where each piece begins, and its nanoseconds."""
    if began < end <= (began // MINUTE + 1) * MINUTE:
        return ((began, end - began),)  # nearly always
    found = []
    while began < end:
        until = min(end, (began // MINUTE + 1) * MINUTE)
        found.append((began, until - began))
        began = until
    return found
