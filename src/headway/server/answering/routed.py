"""Routed: a request with its model, lane and deadlines, the one value that goes through intake."""

from dataclasses import dataclass

from headway.server.answering.arrival import Arrival
from headway.server.config.tenant import Tenant
from headway.server.protocol.deadlines import Deadlines
from headway.server.protocol.labels import Labels
from headway.server.protocol.request import ApiRequest

MOST_TEXT = 200  # the most characters of a route's header


@dataclass(frozen=True, slots=True)
class Routed:
    """A request on its way to a call. Intake tokenizes its prompts and makes its choices; the call
    keeps it."""

    id: str  # the answer's id; the engine's requests are this id with a number
    request: ApiRequest
    arrival: Arrival
    model: str  # the name that the client used
    lane: str
    deadlines: Deadlines  # with the lane's budget, perhaps tightened
    expected: int = 0  # tokens that the caller expects in each answer; 0: not given
    served: str = ""  # the own name of the engine that answers
    labels: Labels = Labels()  # for the ledger
    read_at: int = 0  # when the body had been read, nanoseconds
    route: str = ""  # for a route's attempt: the route that was asked
    reason: str = ""  # for a route's attempt: why this model was chosen
    before: int = 0  # for a route's attempt: nanoseconds from the request's arrival to its own

    @property
    def tenant(self) -> Tenant:
        return self.arrival.tenant

    @property
    def request_id(self) -> str:
        """The client's X-Request-Id, or the id it was given."""
        return self.arrival.headers.get("x-request-id", "")

    @property
    def supersedes(self) -> str:
        """The X-Headway-Supersede value; empty: it supersedes nothing. It is empty for a route's
        attempts: the route's request itself supersedes."""
        return "" if self.route else self.arrival.headers.get("x-headway-supersede", "")

    @property
    def count(self) -> int:
        """The number of engine requests: one per choice of each prompt."""
        return len(self.request.prompts) * self.request.options.n

    def route_headers(self, accepted: bool) -> dict[str, str]:
        """The headers that say which model answered for a route, and why. accepted: whether the
        route's judge accepted the answer."""
        told = {"route": self.route, "route-target": self.model, "route-decision": self.reason}
        if not accepted:
            told["route-accepted"] = "false"
        return {f"x-headway-{name}": _in_a_header(text) for name, text in told.items()}

    @property
    def operation(self) -> str:
        """The operation's name in traces."""
        if self.request.vectors:
            return self.request.vectors.kind
        return "chat" if self.request.chat else "text_completion"


def _in_a_header(text: str) -> str:
    """The text in ASCII, on one line, cut to MOST_TEXT characters."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:MOST_TEXT]
