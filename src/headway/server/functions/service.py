"""FunctionService: a function in the server's own process, and who may call it."""

from collections.abc import Mapping, Sequence

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.durations import SECOND
from headway.server.config.sections.keys import KeySettings
from headway.server.config.tenant import Tenant
from headway.server.functions.calls import FunctionCalls
from headway.server.functions.messages import Wishes
from headway.server.functions.target import Target
from headway.server.intake.access_record import access_record
from headway.server.intake.keys import KeyRing
from headway.server.intake.limits.concurrency import Permit, permit
from headway.server.protocol.deadlines import timeout
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import SOON, jittered

LANE = "x-headway-lane"
NOT_OURS = ("lanes", "models", "default_lane", "tokens_per_minute", "weight")


class FunctionService(FunctionCalls):
    """Its lanes are those that it was decorated with."""

    def __init__(self, target: Target, keys: Sequence[KeySettings] = ()) -> None:
        """Raises SettingError for settings that do not go together."""
        super().__init__(target)
        lanes = list(self.batcher.settings.lanes)
        self.keys = KeyRing(_checked(keys), lanes, lanes[0])
        self.open = 0  # requests that are being answered
        self.draining = False

    def admit(self, headers: Mapping[str, str]) -> Permit:
        """Whoever sends these headers may have one more request; the permit ends with it. Raises
        Problem."""
        self.check_open()
        return permit(self.keys, self.keys.caller(headers))

    def check_open(self) -> None:
        """Raises Problem once the server drains."""
        if self.draining:
            message = "the server is shutting down and takes no more"
            raise Problem(503, message, code="draining", retry=jittered(SOON))

    def wishes(self, headers: Mapping[str, str], tenant: Tenant) -> Wishes:
        """Where and until when items with these headers wait. Raises Problem."""
        lane = access_record().lane = headers.get(LANE, "")
        limit = timeout(headers)
        return Wishes(lane, 0 if limit == NEVER else limit / SECOND)


def _checked(keys: Sequence[KeySettings]) -> Sequence[KeySettings]:
    """Raises SettingError for what a key of a function cannot have."""
    for key in keys:
        for name in NOT_OURS:
            if name in key.model_fields_set:
                raise SettingError(f"keys: {key.name}: a function's keys have no {name}")
    return keys
