"""LeastLoaded and Cheapest: choose the target by load, or by price within the budget."""

from collections.abc import Sequence

from headway.core.request import NEVER
from headway.errors import DeadlineError, SettingError
from headway.routing.attempts import Attempt, Attempts, error_of, loop_now
from headway.routing.decision import Why
from headway.routing.request import RouteRequest
from headway.routing.route import CALLERS_FAULT, Route, Rows, forgotten
from headway.routing.targets.doubt import SPARE, Doubt
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

    Predictions may be wrong or old (Doubt). After five attempts in a row that were late against
    their prediction, a target is taken to need longer than they had. A target that may be better
    and was not asked for ten seconds is probed: a request asks it first, and asks the best one
    beside it once the time left is about what nearly all of that one's answers take.

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
        self.doubts = {each.name: Doubt() for each in self.targets}

    def estimate(self, request: RouteRequest) -> Estimate:
        """The estimate of the target that would be asked now."""
        estimates = self._estimates(request)
        return estimates[self._choose(estimates, self._budget)[0]]

    async def decide(self, attempts: Attempts) -> Attempt:
        now, estimates = loop_now(), self._estimates(attempts.request)
        within = min(attempts.left, self._budget)
        best, why = self._choose(estimates, within)
        found, probed = estimates[best], self._to_probe(estimates, best, why, now)
        words = "nothing is known of it yet"
        if found.is_known:
            words = (
                f"predicted within {found.surely / 1e9:.3g} s, at a cost of {found.cost / 1e9:g}"
            )
        run = _Run(attempts, self.doubts)
        if probed != best:
            run.ask(self.targets[probed], Why.PROBE, "passed over for a while by its prediction")
            alone = estimates[probed].surely  # as long as it is predicted, if there is no limit
            if within != NEVER:
                alone = within - found.surely - found.surely // SPARE
            if answered := await run.next(now + alone):
                return answered
        run.ask(self.targets[best], why, words)
        while True:
            if answered := await run.next():
                return answered

    def _estimates(self, request: RouteRequest) -> list[Estimate]:
        return [self.doubts[each.name].believed(each.estimate(request)) for each in self.targets]

    def _to_probe(self, estimates: Sequence[Estimate], best: int, why: Why, now: int) -> int:
        """The index of a target to ask before the best one, to see whether it is better after all;
        `best`: none. Targets listed after the best and dearer are of use only if all are late."""
        if not estimates[best].is_known:
            return best
        for at, (target, found) in enumerate(zip(self.targets, estimates, strict=True)):
            is_better = at < best or found.cost < estimates[best].cost or why is Why.SOONEST
            if at != best and is_better and self.doubts[target.name].is_due(found.likely, now):
                return at
        return best

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


class _Run:
    """One request of Cheapest: it asks a target, or probes another one before."""

    def __init__(self, attempts: Attempts, doubts: dict[str, Doubt]) -> None:
        self._attempts, self._doubts = attempts, doubts

    def ask(self, target: Target, why: Why, words: str) -> None:
        self._doubts[target.name].heard(loop_now())
        self._attempts.start(target, why, words)

    async def next(self, until: int = NEVER) -> Attempt | None:
        """Wait for the next attempt to end. Returns it if it has answered. None: `until` has come,
        or it has failed and the request goes on. Raises the request's error."""
        attempts = self._attempts
        attempt = await attempts.next(until)
        if attempt is None:
            if attempts.left > 0:
                return None
            for each in attempts.open:
                self._late(each)
            raise attempts.too_late()
        doubt = self._doubts[attempt.target.name]
        doubt.heard(loop_now())
        if attempt.error is None:
            doubt.answered()
            return attempt
        if isinstance(attempt.error, DeadlineError):
            self._late(attempt)
        is_probe_alone = attempt.why is Why.PROBE and len(attempts.all) == 1
        if isinstance(attempt.error, CALLERS_FAULT) or not (attempts.open or is_probe_alone):
            raise error_of(attempt)
        attempts.check_time()
        return None

    def _late(self, attempt: Attempt) -> None:
        """Learn from a late attempt, unless its lateness was predicted."""
        if attempt.why is Why.CHEAPEST:
            doubt = self._doubts[attempt.target.name]
            doubt.late(loop_now() - attempt.began)
            doubt.heard(loop_now())
