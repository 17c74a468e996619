"""How other settings come into force between two steps (Retuning)."""

from headway.core.commands import Retune
from headway.core.planning.in_flight import InFlight
from headway.core.planning.newcomers import Newcomers
from headway.core.planning.resizing import Resizing
from headway.core.sequences.group import Group
from headway.core.sequences.roster import Roster
from headway.core.settings import Settings


class Retuning:
    """Tells every part that keeps something of the settings. A Retune waits while a group runs."""

    def __init__(
        self, roster: Roster, in_flight: InFlight, resizing: Resizing, newcomers: Newcomers
    ) -> None:
        self.waits: Retune | None = None
        self._parts = roster, in_flight, resizing, newcomers

    def due(self, settings: Settings, group: Group) -> Settings | None:
        """Put the waiting settings in force and return them; None: a group still runs, or is not
        answered yet.

        settings: those in force so far. Raises SettingError for a Retune that should never have
        been sent (Settings.retuned).
        """
        assert self.waits, "there is one that waits"
        if group.slots and (self._parts[0].running or group.withheld):
            return None
        retune, self.waits = self.waits, None
        made = settings.retuned(retune.policies, retune.lanes, retune.version)
        for part in self._parts:
            part.retune(made)
        return made
