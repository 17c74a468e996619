"""Asked: the client's request as a route's targets see it. Attempts are made from it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from headway.core.request import NEVER
from headway.routing.request import RouteRequest
from headway.server.answering.routed import Routed
from headway.server.protocol.labels import Labels
from headway.server.protocol.problem import Problem


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
        self, request: RouteRequest, model: str, served: str, stream: bool, now: int
    ) -> Routed:
        """The request of one attempt. model: the model's name in the route. served: its own name.

        The attempt's time in the lane's line starts now. It has the whole request's end deadline.
        """
        whole = self.routed
        budget = whole.deadlines.budget
        if request.deadline != NEVER:
            budget = replace(budget, e2e=request.deadline - now)
        deadlines = replace(
            whole.deadlines,
            budget=budget,
            start_by=budget.start_by(now),
            end_by=request.deadline,
            due=request.due,
        )
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
            served=served,
            route=whole.model,
            reason=request.reason,
            before=now - whole.arrival.at,
            labels=self._labels(),
            read_at=now,
        )

    def _labels(self) -> Labels:
        """Labels for the ledger: the attempts form a workflow named by the request's id, unless
        the client named a workflow or an attempt."""
        said, number = self.routed.labels, next(self.numbers)
        if said.workflow or said.attempt:
            return said
        return replace(said, workflow=self.routed.id, attempt=number)
