"""A request whose model, lane and deadlines are known: the one value that goes through intake."""

from dataclasses import dataclass

from headway.server.answering.arrival import Arrival
from headway.server.config.tenant import Tenant
from headway.server.protocol.deadlines import Deadlines
from headway.server.protocol.labels import Labels
from headway.server.protocol.request import ApiRequest

MOST_TEXT = 200  # characters of a header that says why


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
    route: str = ""  # of an attempt of a route: the route that was asked
    reason: str = ""  # and why this model was

    @property
    def tenant(self) -> Tenant:
        return self.arrival.tenant

    @property
    def request_id(self) -> str:
        """The client's X-Request-Id, or the one that it was given."""
        return self.arrival.headers.get("x-request-id", "")

    @property
    def supersedes(self) -> str:
        """Its X-Headway-Supersede; empty: it supersedes nothing. Attempts of one request do not
        supersede each other: the request does."""
        return "" if self.route else self.arrival.headers.get("x-headway-supersede", "")

    @property
    def count(self) -> int:
        """Requests to the engine: one for each choice of each prompt."""
        return len(self.request.prompts) * self.request.options.n

    def route_headers(self, accepted: bool) -> dict[str, str]:
        """Who answers for a route, and why. accepted: its judge is content."""
        told = {"route": self.route, "route-target": self.model, "route-decision": self.reason}
        if not accepted:
            told["route-accepted"] = "false"
        return {f"x-headway-{name}": _in_a_header(text) for name, text in told.items()}

    @property
    def operation(self) -> str:
        """As traces call it."""
        if self.request.vectors:
            return self.request.vectors.kind
        return "chat" if self.request.chat else "text_completion"


def _in_a_header(text: str) -> str:
    """In ASCII, on one line."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:MOST_TEXT]
