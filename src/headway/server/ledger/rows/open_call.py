"""The ledger's data of a call that is not over (OpenCall)."""

from dataclasses import dataclass, field

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.server.answering.call import Call


@dataclass(slots=True)
class OpenCall:
    """A call until its rows can be made. Times are nanoseconds on the engine's clock."""

    call: Call
    rows: dict[str, RequestRow] = field(default_factory=dict)  # by request
    stages: dict[str, RequestStages] = field(default_factory=dict)
    left: int = NEVER  # when its answer was made or given up
    sent: int = NEVER  # when the answer's last byte was sent
    rowless: bool = False  # no more rows will come, as after an engine's failure

    @property
    def is_whole(self) -> bool:
        """Whether all data of the call has come."""
        if NEVER in (self.left, self.sent):
            return False
        return self.rowless or len(self.rows) == len(self.call.choices)
