"""Target: anything that can answer a request. A route is a target, too."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headway.core.request import NEVER
from headway.routing.bill import Bill
from headway.routing.request import RouteAnswer, RouteRequest


class TargetLoad(NamedTuple):
    """How busy a target is, as far as it is known."""

    outstanding: int = 0  # requests that wait or run; at least those asked through this target
    wait: int = 0  # nanoseconds until the requests waiting now have started; 0: none, or unknown


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a request that is asked now will be answered, and at what cost."""

    likely: int = NEVER  # mean nanoseconds until the answer; NEVER: nothing is known yet
    surely: int = NEVER  # nanoseconds that nearly all answers stay within
    nanoseconds: int = 0  # device time
    cost: int = 0  # billionths of the unit of price

    @property
    def is_known(self) -> bool:
        """Whether there is a prediction at all."""
        return self.likely != NEVER


UNKNOWN = Estimate()


class Target(Protocol):
    """Anything that can answer a request. All calls are made in one event loop."""

    @property
    def name(self) -> str:
        """Unique within a route."""
        ...

    @property
    def streams(self) -> bool:
        """Whether `stream` works."""
        ...

    @property
    def load(self) -> TargetLoad: ...

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate by the load and by what was learned. It sends no request."""
        ...

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """Return the answer, and close the bill with its cost. Cancelling the task cancels the
        request.

        Raises RefusedError (try another target, or this one at its retry_at), DeadlineError,
        PromptError or SettingError (the request itself is at fault, so no other target is asked),
        or anything else for a failure of the target.
        """
        ...

    def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Any]:
        """Yield the answer piece by piece. Raises SettingError where `streams` is False."""
        ...
