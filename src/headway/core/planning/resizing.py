"""Which sizes follow the load, and how they change when a request ends (Resizing)."""

from collections.abc import Mapping

from headway.core.cost.lane_sizes import LaneSizes
from headway.core.ledger import RequestRow, SizeChange
from headway.core.policies.join import Dynamic
from headway.core.sequences.roster import Roster
from headway.core.settings import Settings


class Resizing:
    """Resizes a lane's slots, or the groups, and the lane's window when a request ends."""

    def __init__(self, settings: Settings, roster: Roster, sizes: LaneSizes) -> None:
        join = settings.policies.join
        self.roster, self.sizes = roster, sizes
        self._join = join if isinstance(join, Dynamic) else None

    def retune(self, settings: Settings) -> None:
        """Take over other settings. Groups and windows that follow the load begin anew if the join
        policy has changed."""
        join = settings.policies.join if isinstance(settings.policies.join, Dynamic) else None
        if join != self._join:
            self._join = join
            self.sizes.forget()

    @property
    def windows(self) -> Mapping[str, int]:
        """The present window of each lane, in nanoseconds; none unless join is Dynamic."""
        if self._join is None:
            return {}
        return {name: self._join.window_of(name, self.sizes) for name in self.roster.lines}

    def ended(self, row: RequestRow, group: int) -> list[SizeChange]:
        """Make the changes that follow from the end of a request, and return them. group: how many
        requests started together last."""
        line = self.roster.lines[row.lane]
        if (change := self.sizes.ended(row, line)) is not None:
            line.slots = change.after
        changes = [change]
        if self._join is not None:
            changes += [self._resize_group(self._join, row) if change is None else None]
            changes += [self._resize_window(self._join, row, group)]
        return [each for each in changes if each is not None]

    def _resize_group(self, join: Dynamic, row: RequestRow) -> SizeChange | None:
        if not join.least:
            return None
        change = self.sizes.group_ended(row, join.least, join.size, self.roster.waiting)
        if change is not None:
            self.sizes.group = change.after
        return change

    def _resize_window(self, join: Dynamic, row: RequestRow, group: int) -> SizeChange | None:
        """Resize the window. It grows only if requests wait that would have had a place in the last
        group."""
        lane = row.lane if row.lane in join.windows else ""
        if lane not in join.lows:
            return None
        count = join.size_of(self.sizes)
        between = join.lows[lane], join.windows[lane] if lane else join.window
        waiting = self.roster.waiting if group < count else 0
        change = self.sizes.window_ended(row, lane, between, count=count, waiting=waiting)
        if change is not None:
            self.sizes.windows[lane] = change.after
        return change
