"""A request whose model, lane and deadlines are known: the one value that goes through intake."""

from dataclasses import dataclass

from headway.server.answering.arrival import Arrival
from headway.server.config.tenant import Tenant
from headway.server.protocol.deadlines import Deadlines
from headway.server.protocol.labels import Labels
from headway.server.protocol.request import ApiRequest


@dataclass(frozen=True, slots=True)
class Routed:
    """Its prompts are tokenized next, its choices are made of it, and its call keeps it."""

    id: str  # of the answer; the engine's requests are numbered after it
    request: ApiRequest
    arrival: Arrival
    model: str  # the name that it was asked by
    lane: str
    deadlines: Deadlines  # and the lane's budget, perhaps tightened
    expected: int = 0  # tokens that the caller expects in each answer; 0: it does not say
    served: str = ""  # the entry of `models` that answers, by its own name
    labels: Labels = Labels()  # for the ledger
    read_at: int = 0  # when its body had been read, nanoseconds

    @property
    def tenant(self) -> Tenant:
        return self.arrival.tenant

    @property
    def request_id(self) -> str:
        """The client's X-Request-Id, or the one that it was given."""
        return self.arrival.headers.get("x-request-id", "")

    @property
    def supersedes(self) -> str:
        """Its X-Headway-Supersede; empty: it supersedes nothing."""
        return self.arrival.headers.get("x-headway-supersede", "")

    @property
    def count(self) -> int:
        """Requests to the engine: one for each choice of each prompt."""
        return len(self.request.prompts) * self.request.options.n

    @property
    def operation(self) -> str:
        """As traces call it."""
        if self.request.vectors:
            return self.request.vectors.kind
        return "chat" if self.request.chat else "text_completion"
