"""What is known of a call until it is over (OpenCall)."""

from dataclasses import dataclass, field

from headway.core.accounts.stages import RequestStages
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.server.answering.call import Call


@dataclass(slots=True)
class OpenCall:
    """A call until all is known of it. Times in nanoseconds on the engine's clock."""

    call: Call
    rows: dict[str, RequestRow] = field(default_factory=dict)  # by request
    stages: dict[str, RequestStages] = field(default_factory=dict)
    left: int = NEVER  # when its answer was made, or given up
    sent: int = NEVER  # when the last byte of it was sent
    rowless: bool = False  # the engine has failed: no more rows will come

    @property
    def is_whole(self) -> bool:
        """Whether nothing more will be known of it."""
        if NEVER in (self.left, self.sent):
            return False
        return self.rowless or len(self.rows) == len(self.call.choices)
