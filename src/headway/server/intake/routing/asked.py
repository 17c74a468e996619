"""Asked: the client's request as a route's targets see it. Attempts are made from it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from headway.core.request import NEVER
from headway.routing.request import RouteRequest
from headway.server.answering.routed import Routed
from headway.server.intake.model import Model
from headway.server.protocol.deadlines import Deadlines, deadlines_of
from headway.server.protocol.labels import Labels
from headway.server.protocol.problem import Problem

MARGINS = 10_000_000  # nanoseconds by which nested routes decide before their deadline


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a RouteRequest. Rules that depend on length use its len()."""

    routed: Routed  # as the client sent it: its model is the route
    size: int  # bytes of the request's body
    tokens: int = 0  # of the longest prompt; 0: no rule asks for it
    refusals: list[Problem] = field(default_factory=list)  # the targets' refusals so far
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # numbers the attempts

    def __len__(self) -> int:
        return self.tokens

    def attempt(
        self, request: RouteRequest, target: Model, model: str, stream: bool, now: int
    ) -> Routed:
        """The request of one attempt. target: the model asked. model: its name in the route.

        The attempt's time in the lane's line starts now, and its lane is as the target has it. It
        has the whole request's end deadline, or an earlier one of the target's lane.
        """
        whole = self.routed
        deadlines = self._deadlines(request, target, now)
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
            deadlines=deadlines,
            model=model,
            served=target.name,
            route=whole.model,
            reason=request.reason,
            before=now - whole.arrival.at,
            labels=self._labels(),
            read_at=now,
        )

    def _deadlines(self, request: RouteRequest, target: Model, now: int) -> Deadlines:
        """When an attempt must start and end. A limit that the route sets is like a client's own:
        it is not the lane's."""
        whole = self.routed.deadlines
        mine = deadlines_of(target.lanes[self.routed.lane].budget, self.routed.arrival.headers, now)
        end_by = min(request.deadline, mine.end_by)
        budget = mine.budget
        if end_by != NEVER:
            budget = replace(budget, e2e=end_by - now)
        by_route = request.deadline < whole.end_by - MARGINS
        own_end = mine.own_end if end_by < request.deadline else whole.own_end or by_route
        return replace(mine, budget=budget, end_by=end_by, due=request.due, own_end=own_end)

    def _labels(self) -> Labels:
        """Labels for the ledger: the attempts form a workflow named by the request's id, unless
        the client named a workflow or an attempt."""
        said, number = self.routed.labels, next(self.numbers)
        if said.workflow or said.attempt:
            return said
        return replace(said, workflow=self.routed.id, attempt=number)
