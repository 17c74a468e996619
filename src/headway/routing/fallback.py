"""Fallback: ask the next target if one refuses, fails or is late."""

from collections.abc import Iterator, Sequence

from headway.core.request import NEVER
from headway.errors import DeadlineError, RefusedError, SettingError, first_line
from headway.routing.attempts import Attempt, Attempts, error_of, loop_now
from headway.routing.circuit import USUAL, Circuit, CircuitSettings, CircuitState, Closed
from headway.routing.decision import Outcome, Why
from headway.routing.route import CALLERS_FAULT, Route, Rows, forgotten
from headway.routing.targets.doubt import SPARE, Doubt
from headway.routing.targets.target import Target


class Fallback(Route):
    """Asks its targets in order until one answers. The route streams if all of its targets do. It
    may change to another target before a stream's first piece, but not after it.

    A target is skipped while its circuit is open, until the `retry_at` of its last refusal to the
    same lane, and while it is predicted to miss the deadline. If no other target is left, the route
    still asks those predicted to be late, the soonest first. Predictions grow old: a target passed
    over for ten seconds by its prediction is probed. While the probe runs, another target is asked
    once the time left is about what nearly all of that one's answers take. An error of the request
    itself (PromptError, SettingError) ends the request at once, and no other target is asked.

    timeout: seconds that each attempt may take, one value for all targets or one for each; 0: only
    the deadline limits it. For a stream: seconds until its first piece. hedge: when the timeout
    passes, the attempt is not cancelled while the next target is asked; the first answer counts
    (as with Envoy's hedge_on_per_try_timeout).
    circuit: None: no circuit ever opens. Each route has its own circuits, even for shared targets.
    """

    can_stream = True

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        timeout: float | Sequence[float] = 0.0,
        hedge: bool = False,
        circuit: CircuitSettings | None = USUAL,
        name: str = "",
        rows: Rows = forgotten,
    ) -> None:
        super().__init__(targets, name=name, rows=rows)
        if len(set(self.targets)) != len(self.targets):
            raise SettingError(f"{self.name}: a fallback has each target once")
        timeouts = [timeout] * len(self.targets) if isinstance(timeout, int | float) else [*timeout]
        if len(timeouts) != len(self.targets) or not all(0 <= each < 1e9 for each in timeouts):
            raise SettingError(f"{self.name}: {timeout} is no timeout for {len(self.targets)}")
        if hedge and not all(timeouts[:-1]):
            raise SettingError(f"{self.name}: hedging needs a timeout after which it begins")
        self.hedge = hedge
        self.timeouts = {
            each.name: int(seconds * 1e9) if seconds else NEVER
            for each, seconds in zip(self.targets, timeouts, strict=True)
        }
        self.circuits: dict[str, Circuit] = {
            each.name: Circuit(circuit) if circuit else Closed() for each in self.targets
        }
        self.doubts = {each.name: Doubt() for each in self.targets}
        self.not_before: dict[tuple[str, str], int] = {}  # retry_at of refusals, by target and lane

    def refused(self, name: str, lane: str, retry_at: int) -> None:
        """Do not ask this target for this lane before `retry_at`. Past times are forgotten."""
        now, known = loop_now(), self.not_before
        self.not_before = {key: again for key, again in known.items() if again > now}
        self.not_before[name, lane] = retry_at

    async def decide(self, attempts: Attempts) -> Attempt:
        run = _Run(self, attempts)
        try:
            run.ask(Why.FIRST, "the first of the fallback")
            while True:
                attempt = await attempts.next(run.limit)
                if attempt is None:
                    run.late()
                elif run.heard(attempt):
                    return attempt
        finally:
            run.leave()


class _Run:
    """One request in a fallback."""

    def __init__(self, fallback: Fallback, attempts: Attempts) -> None:
        self._fallback, self._attempts = fallback, attempts
        self._left = self._askable()
        self._has_asked = False  # any target
        self._probed: Target | None = None  # asked first, although it is predicted to be late
        self._unlikely: list[tuple[int, Target]] = []  # predicted to be late: nanoseconds, target
        self._retries: list[int] = []  # when skipped or refusing targets may be asked again
        self._error: BaseException | None = None  # the last error that was not a refusal
        self._refusal: RefusedError | None = None  # the last refusal
        self._unheard: list[Attempt] = []  # attempts whose end is not known yet
        self._blamed = set[Attempt]()  # attempts already judged late
        self.limit = NEVER  # when the latest attempt becomes late

    def ask(self, why: Why, words: str) -> bool:
        """Ask the next target. False: there is none, but an attempt still runs. Raises the
        request's error if none does."""
        target = next(self._left, None)
        if target is None and self._unlikely and not self._attempts.open:
            self._unlikely.sort(key=lambda each: each[0])
            why, words = Why.SOONEST, "nobody else is left"
            target = self._unlikely.pop(0)[1]
        if target is None:
            if self._attempts.open:
                return False
            raise self._no_answer()
        now, circuit = loop_now(), self._fallback.circuits[target.name]
        if circuit.state(now) is CircuitState.HALF_OPEN:
            why, words = Why.PROBE, "its circuit is half open"
        elif target is self._probed:
            why, words = Why.PROBE, "passed over for a while by its prediction"
        elif why is Why.FIRST and target is not self._fallback.targets[0]:
            why, words = Why.AFTER_SKIP, "those before it were passed over"
        circuit.begun(now)
        self._fallback.doubts[target.name].heard(now)
        timeout = self._fallback.timeouts[target.name]
        self.limit = NEVER if timeout == NEVER else now + timeout
        deadline = self._attempts.request.deadline
        if not self._fallback.hedge and not self._attempts.streams:  # of a stream, the first piece
            deadline = min(deadline, self.limit)
        if target is self._probed:
            self.limit = min(self.limit, now + self._alone(target))
        self._has_asked = True
        attempt = self._attempts.start(target, why, words, deadline=deadline)
        self._unheard.append(attempt)
        return True

    def _askable(self) -> Iterator[Target]:
        """Yield the targets in order, and record those that are skipped."""
        lane = self._attempts.request.lane
        for target in self._fallback.targets:
            now, circuit = loop_now(), self._fallback.circuits[target.name]
            again = self._fallback.not_before.get((target.name, lane), 0)
            if circuit.state(now) is CircuitState.OPEN:
                self._retries.append(circuit.opens_at(now))
                self._attempts.skip(target, Why.CIRCUIT_OPEN, "it has failed repeatedly")
            elif again > now:
                self._retries.append(again)
                words = f"it refused, and may be asked again in {(again - now) / 1e9:.3g} s"
                self._attempts.skip(target, Why.RETRY_LATER, words)
            elif (likely := self._likely(target)) > self._attempts.left:
                if not self._has_asked and self._fallback.doubts[target.name].is_due(likely, now):
                    self._probed = target
                    yield target
                    continue
                self._unlikely.append((likely, target))
                left = max(0, self._attempts.left) / 1e9
                words = f"{likely / 1e9:.3g} s are predicted, and {left:.3g} s are left"
                self._attempts.skip(target, Why.NO_TIME, words)
            else:
                yield target

    def _likely(self, target: Target) -> int:
        """Predicted nanoseconds until the target's answer; 0: not known."""
        found = target.estimate(self._attempts.request)
        return found.likely if found.is_known else 0

    def _alone(self, probed: Target) -> int:
        """Nanoseconds that a probe runs alone, so that another target still has time. Of a target
        that is not known to be in time, half of what is left."""
        left, needs = self._attempts.left, list[int]()
        for each in self._fallback.targets:
            found, circuit = (
                each.estimate(self._attempts.request),
                self._fallback.circuits[each.name],
            )
            is_askable = circuit.state(loop_now()) is not CircuitState.OPEN
            if each is not probed and is_askable and found.surely <= left:
                needs.append(found.surely + found.surely // SPARE)
        return left - min(needs, default=left // 2)

    def _is_probing(self, attempt: Attempt) -> bool:
        """Whether a probe may run on while the next target is asked: its own timeout, if it has
        one, is not over."""
        timeout = self._fallback.timeouts[attempt.target.name]
        return attempt.target is self._probed and loop_now() < attempt.began + timeout

    def heard(self, attempt: Attempt) -> bool:
        """Handle an attempt that has ended. True: its answer is given. False: it failed, and the
        next target, if any, was asked. Raises the request's error."""
        self._unheard.remove(attempt)
        circuit, name = self._fallback.circuits[attempt.target.name], attempt.target.name
        self._fallback.doubts[name].heard(loop_now())
        error = attempt.error
        if error is None:
            circuit.answered()
            return True
        if isinstance(error, CALLERS_FAULT):
            self._excuse(attempt)
            raise error
        said = f"{name}: {first_line(error_of(attempt))}"
        if isinstance(error, RefusedError):
            self._excuse(attempt)
            self._refusal = error
            if error.retry_at != NEVER:
                self._retries.append(error.retry_at)
                self._fallback.refused(name, attempt.request.lane, error.retry_at)
            self.ask(Why.AFTER_REFUSAL, said)
            return False
        self._error = error_of(attempt)
        if isinstance(error, DeadlineError):
            self._blame(attempt)
            self._attempts.check_time()
            self.ask(Why.AFTER_LATENESS, said)
            return False
        if attempt not in self._blamed:
            circuit.failed(loop_now())
        self.ask(Why.AFTER_ERROR, said)
        return False

    def late(self) -> None:
        """Handle a latest attempt that is over its timeout, or a deadline that has passed."""
        if self._attempts.left <= 0:
            for attempt in self._unheard:
                self._blame(attempt)
            raise self._attempts.too_late()
        latest = self._unheard[-1]
        words = f"{latest.target.name} has not answered within {self._took(latest):.3g} s"
        if self._is_probing(latest):
            self.limit = min(NEVER, latest.began + self._fallback.timeouts[latest.target.name])
            self.ask(Why.AFTER_LATENESS, words)
            return
        self._blame(latest)
        self._error = DeadlineError(words)
        if not self._fallback.hedge:
            self._attempts.drop(latest, Outcome.LATE, "not within its timeout")
            self._unheard.remove(latest)
        if not self.ask(Why.AFTER_LATENESS, words):
            raise self._error

    def _took(self, attempt: Attempt) -> float:
        return (loop_now() - attempt.began) / 1e9

    def _blame(self, attempt: Attempt) -> None:
        """Tell the circuit that the attempt is late, if its timeout was its limit. If not, only the
        caller's deadline cut it short, which says nothing about the target."""
        if attempt in self._blamed:
            return
        self._blamed.add(attempt)
        name = attempt.target.name
        # A nested route is late a little before its deadline, so the deadline counts, not the span.
        is_limit = attempt.request.deadline < self._attempts.request.deadline
        if is_limit or loop_now() - attempt.began >= self._fallback.timeouts[name]:
            self._fallback.circuits[name].failed(loop_now())
        else:
            self._excuse(attempt)

    def _excuse(self, attempt: Attempt) -> None:
        """Let the circuit learn nothing from the attempt. If it was the probe, allow another."""
        if attempt.why is Why.PROBE:
            self._fallback.circuits[attempt.target.name].left()

    def leave(self) -> None:
        """Finish the request. Attempts that still run are cancelled; circuits learn nothing new."""
        for attempt in self._unheard:
            if attempt not in self._blamed:
                self._excuse(attempt)

    def _no_answer(self) -> BaseException:
        """The error of a request without an answer: the last failure, else one refusal for all."""
        if self._error is not None:
            return self._error
        soonest = min(self._retries, default=NEVER)
        if self._refusal is not None:
            return RefusedError(f"every target refused; the last: {self._refusal}", soonest)
        return RefusedError(f"{self._fallback.name}: no target can be asked now", soonest)
