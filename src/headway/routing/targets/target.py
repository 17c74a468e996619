"""Target: whoever can answer a request. A route is one, too."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headway.core.request import NEVER
from headway.routing.bill import Bill
from headway.routing.request import RouteAnswer, RouteRequest


class TargetLoad(NamedTuple):
    """How busy a target is, as of its latest news."""

    outstanding: int = 0  # requests that wait or run; at least those that were asked through it
    wait: int = 0  # nanoseconds until those that wait now have started; 0: nobody waits, or unknown


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a request that is asked now will be answered, and at what cost."""

    likely: int = NEVER  # nanoseconds until the answer: the mean; NEVER: nothing is known yet
    surely: int = NEVER  # that nearly all answers do not exceed
    nanoseconds: int = 0  # device time
    cost: int = 0  # billionths of the unit of price

    @property
    def is_known(self) -> bool:
        """Whether it is more than a word for not knowing."""
        return self.likely != NEVER


UNKNOWN = Estimate()


class Target(Protocol):
    """Everything runs in one event loop."""

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
        """Looks at the load and at what was learned. It asks nobody."""
        ...

    async def ask(self, request: RouteRequest, bill: Bill) -> RouteAnswer:
        """The answer. Cancelling the task cancels the request. The cost is told to the bill.

        Raises RefusedError (try another target, or this one at its retry_at), DeadlineError,
        PromptError or SettingError (the request itself is at fault: no other target is asked), or
        anything else for a failure of the target.
        """
        ...

    def stream(self, request: RouteRequest, bill: Bill) -> AsyncGenerator[Any]:
        """The answer piece by piece. Raises SettingError where `streams` is False."""
        ...
