"""What a route's targets are asked (Asked): the client's request, from which attempts are made."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from headway.core.request import NEVER
from headway.routing.request import RouteRequest
from headway.server.answering.routed import Routed
from headway.server.protocol.deadlines import Deadlines
from headway.server.protocol.labels import Labels
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a RouteRequest. Its length is what rules go by."""

    routed: Routed  # as the client sent it: its model is the route
    size: int  # bytes of its body
    tokens: int = 0  # of its longest prompt; 0: no rule asks
    refusals: list[Problem] = field(default_factory=list)  # by targets, so far
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # of attempts

    def __len__(self) -> int:
        return self.tokens

    def attempt(
        self, request: RouteRequest, model: str, served: str, stream: bool, now: int
    ) -> Routed:
        """What one model is asked. model, served: its name as the route has it, and its own.

        Its time in the lane's line begins now. It must end when the whole must.
        """
        whole = self.routed
        budget = whole.deadlines.budget
        if request.deadline != NEVER:
            budget = replace(budget, e2e=request.deadline - now)
        wanted = replace(
            whole.request,
            options=request.options,
            stream=stream,
            hides_scores=whole.request.options.logprobs < 0,
        )
        return replace(
            whole,
            id=request.id,
            request=wanted,
            arrival=replace(whole.arrival, at=now),
            deadlines=Deadlines(budget, budget.start_by(now), request.deadline, request.due),
            model=model,
            served=served,
            route=whole.model,
            reason=request.reason,
            labels=self._labels(),
        )

    def _labels(self) -> Labels:
        """For the ledger: the attempts are a workflow with the request's id, unless the client has
        named its own."""
        said, number = self.routed.labels, next(self.numbers)
        if said.workflow or said.attempt:
            return said
        return replace(said, workflow=self.routed.id, attempt=number)
