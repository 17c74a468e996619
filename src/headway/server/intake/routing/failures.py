"""Turns problems into errors for routes (failure), and errors into client answers (problem_of).

After a refusal, a failure or a missed deadline a route asks another target. If the request itself
or its key is at fault, the route asks no other target.
"""

from headway.core.request import NEVER
from headway.errors import (
    DeadlineError,
    EngineDownError,
    EngineError,
    HeadwayError,
    PromptError,
    RefusedError,
)
from headway.server import clock
from headway.server.answering.routed import Routed
from headway.server.intake.routing.asked import MARGINS, Asked
from headway.server.protocol.problem import Problem, wrong
from headway.server.protocol.retry_after import SOON, jittered

# Codes of 400 after which another target may still answer.
OTHERS_MAY = frozenset({"context_length_exceeded", "not_supported"})
# Codes of refusals of the key itself: every target would say the same.
OF_THE_KEY = frozenset({"rate_limit_exceeded", "spend_limit_reached", "ledger_away"})
DOWN = frozenset({"engine_down"})


def failure(problem: Problem, asked: Asked) -> HeadwayError:
    """The error that a target raises for its model's problem.

    A refusal carries no retry time. Asking a model of this process again costs nothing, and the
    time in the problem is the client's own place in line.
    """
    status, code, said = problem.status, problem.code, str(problem)
    if status == 408:
        return DeadlineError(said)
    if code in DOWN:
        return EngineDownError(said)
    if code in OF_THE_KEY:
        return PromptError(said)
    if status in (429, 503) or code in OTHERS_MAY:
        asked.refusals.append(problem)
        return RefusedError(said, NEVER)
    return EngineError(said) if status >= 500 else PromptError(said)


def problem_of(error: HeadwayError, asked: Asked) -> Problem:
    """The answer to the client of a route that raised this error."""
    route, said = asked.routed, str(error)
    if isinstance(error.__cause__, Problem):  # a target's: answer as that model would have
        return error.__cause__
    match error:
        case DeadlineError():
            return _late(route, said)
        case RefusedError() if asked.refusals:
            first = min(asked.refusals, key=lambda each: each.retry or NEVER)
            return Problem(first.status, said, first.param, first.code, first.retry)
        case RefusedError(retry_at=at) if at == NEVER:
            return wrong(said, "model", "no_rule")
        case RefusedError(retry_at=at):
            seconds = max(0, at - clock.now()) / 1e9
            return Problem(503, said, code="no_target", retry=jittered(seconds))
        case EngineDownError():
            return Problem(503, said, code="engine_down", retry=jittered(SOON))
    return Problem(500, said, code="engine_error")


def _late(route: Routed, said: str) -> Problem:
    if clock.now() >= route.deadlines.end_by - MARGINS:
        return Problem(408, said, code="deadline_exceeded", final=True)
    return Problem(503, said, code="no_target", retry=jittered(SOON))
