"""LeastLoaded and Cheapest: choose the target by load, or by price within the budget."""

from collections.abc import Sequence

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.routing.attempts import Attempt, Attempts
from headway.routing.decision import Why
from headway.routing.request import RouteRequest
from headway.routing.route import Route, Rows, forgotten
from headway.routing.targets.target import Estimate, Target, TargetLoad


class LeastLoaded(Route):
    """Asks the target with the shortest predicted wait. Ties go to the fewest outstanding requests,
    then to the first target. The route streams if all of its targets do.
    """

    can_stream = True

    @property
    def load(self) -> TargetLoad:
        """All outstanding requests, and the shortest wait of any target."""
        loads = [each.load for each in self.targets]
        return TargetLoad(
            sum([each.outstanding for each in loads]), min([each.wait for each in loads])
        )

    async def decide(self, attempts: Attempts) -> Attempt:
        loads = [each.load for each in self.targets]
        best = min(range(len(loads)), key=lambda at: (loads[at].wait, loads[at].outstanding, at))
        load = loads[best]
        words = f"a wait of {load.wait / 1e9:.3g} s, {load.outstanding} outstanding"
        attempts.start(self.targets[best], Why.LEAST_LOADED, words)
        return await attempts.only()


class Cheapest(Route):
    """Asks the cheapest of the targets that are predicted to answer within the budget.

    Each target predicts its own time: its wait under the present load, and what nearly all of its
    answers take. If no prediction is within the budget, the route asks a target that has no
    prediction yet, to learn one; if all have one, it asks the target predicted to answer first.
    Ties go to the first target. List the cheapest target first, since nothing is known at the
    beginning. The route streams if all of its targets do.

    budget: seconds in which a request should be answered; 0: only the request's deadline counts.
    """

    can_stream = True

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        budget: float = 0.0,
        name: str = "",
        rows: Rows = forgotten,
    ) -> None:
        super().__init__(targets, name=name, rows=rows)
        if not 0 <= budget < 1e9:
            raise SettingError(f"{self.name}: a budget of {budget} seconds cannot be kept")
        self._budget = int(budget * 1e9) if budget else NEVER

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate of the target that would be asked now."""
        estimates = [each.estimate(request) for each in self.targets]
        return estimates[self._choose(estimates, self._budget)[0]]

    async def decide(self, attempts: Attempts) -> Attempt:
        estimates = [each.estimate(attempts.request) for each in self.targets]
        best, why = self._choose(estimates, min(attempts.left, self._budget))
        found = estimates[best]
        words = "nothing is known of it yet"
        if found.is_known:
            words = (
                f"predicted within {found.surely / 1e9:.3g} s, at a cost of {found.cost / 1e9:g}"
            )
        attempts.start(self.targets[best], why, words)
        return await attempts.only()

    def _choose(self, estimates: Sequence[Estimate], within: int) -> tuple[int, Why]:
        """The index of the target to ask, and why. within: the nanoseconds left."""
        known = [at for at, each in enumerate(estimates) if each.is_known]
        fitting = [at for at in known if estimates[at].surely <= within]
        if fitting:
            return min(fitting, key=lambda at: (estimates[at].cost, at)), Why.CHEAPEST
        for at, each in enumerate(estimates):
            if not each.is_known:
                return at, Why.CHEAPEST
        return min(known, key=lambda at: (estimates[at].surely, at)), Why.SOONEST
