"""The simulator's side of a plan: runs of the real scheduler in virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from headway.commands.plan.estimate.planned_traffic import SECOND, PlannedTraffic
from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.ledger import RequestRow, StepRow
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.errors import SettingError
from headway.sim.inbox import arrivals
from headway.sim.simulate import simulate

STEP_TOKENS = 2_048  # a step's token limit, as in `LLM`
ROOM = 1 << 40  # the token limit of a step without one
BLOCKS = 200_000  # KV blocks of a memory that is never full
EDGE = 10  # 1 / EDGE of the requests at either end of a run are not counted


@dataclass(frozen=True, slots=True)
class Machine:
    """What the formulas and the simulator know of a machine."""

    cost: StepCost
    slots: int
    num_blocks: int = BLOCKS
    block_size: int = 16
    seed: int = 0  # of arrivals and of the steps' residuals
    fit: int = 0  # blocks that fit beside the weights; 0: num_blocks
    depth: int = 1  # steps in flight: with 2, the host decides a step while another is computed


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The rows of a simulated run, and its figures."""

    requests: tuple[RequestRow, ...]  # by arrival
    steps: tuple[StepRow, ...]

    @property
    def settled(self) -> tuple[RequestRow, ...]:
        """The requests, except those at either end, when the engine fills up or empties."""
        edge = len(self.requests) // EDGE
        return self.requests[edge : len(self.requests) - edge]

    @property
    def ttft(self) -> float:
        """Mean TTFT of the settled requests in nanoseconds."""
        return fmean(row.ttft for row in self.settled)

    @property
    def tpot(self) -> float:
        """Mean nanoseconds between tokens. Each settled request is weighted by its decode steps."""
        rows = [row for row in self.settled if row.generated > 1]
        gaps = sum(row.generated - 1 for row in rows)
        return sum(row.last_token - row.first_token for row in rows) / gaps if gaps else 0.0

    @property
    def preemptions(self) -> int:
        return sum(row.preemptions for row in self.requests)

    @property
    def padding(self) -> float:
        """Share of the computed tokens that is padding."""
        padding = sum(row.padding_tokens for row in self.steps)
        return padding / (padding + sum(row.tokens for row in self.steps))

    @property
    def tokens_per_second(self) -> float:
        """Answer tokens per second, of answers that ended in the middle of the run."""
        rows = sorted(self.requests, key=lambda row: row.finished)
        edge = len(rows) // EDGE
        span = rows[-1 - edge].finished - rows[edge].finished
        return sum(row.generated for row in rows[edge + 1 : len(rows) - edge]) / span * 1e9

    def mean(self, figure: Callable[[StepRow], int]) -> float:
        """The mean of a step's figure over the time between the edges; 0 while the engine slept.

        The host's time after a step counts as the step's while requests are running.
        """
        begins, ends = self.settled[0].arrived, self.settled[-1].arrived
        spent = 0
        for row, following in pairwise(self.steps):
            if begins <= row.began < ends:
                whole = following.began - row.began if row.running else row.nanoseconds
                spent += figure(row) * whole
        return spent / (ends - begins)

    def crowded_mean(self, figure: Callable[[StepRow], int]) -> float:
        """The mean of a figure over the later half of the steps that left requests waiting."""
        steps = [row for row in self.steps if row.waiting]
        steps = steps[len(steps) // 2 :]
        spent = sum(row.nanoseconds for row in steps)
        return sum(figure(row) * row.nanoseconds for row in steps) / spent if spent else 0.0


def whole_prompts(slots: int) -> Policies:
    """Policies where waiting prompts join the next step whole, as long as it has tokens left."""
    return Policies(Continuous(slots), step_tokens=max(STEP_TOKENS, slots))


def one_prompt(slots: int) -> Policies:
    """Policies where a step has one whole prompt, beside a token for each decoding request.

    This holds for prompts longer than the slots, which leave no room for a second prompt.
    """
    return Policies(Continuous(slots), step_tokens=slots + 1)


def serve(machine: Machine, policies: Policies, requests: Sequence[Request]) -> SimulatedRun:
    """Serve all requests to the end. Raises SettingError if one can never fit into the memory."""
    lanes = (Lane(max_waiting=len(requests) + 1),)
    memory = machine.num_blocks, machine.block_size
    scheduler = Scheduler(Settings(*memory, lanes, policies, depth=machine.depth))
    simulate(scheduler, arrivals(requests), machine.cost, seed=machine.seed)
    steps, rows = scheduler.ledger.take()
    if any(row.finish is Finish.REFUSED for row in rows):
        raise SettingError(
            "a request does not fit into the machine's KV memory: scale the tokens or cut answers"
        )
    return SimulatedRun(
        tuple(sorted(rows, key=lambda row: (row.arrived, int(row.id)))), tuple(steps)
    )


def most_served(machine: Machine, policies: Policies, traffic: PlannedTraffic, count: int) -> float:
    """Requests per second that the machine serves while others always wait.

    `count` requests are served all at once, then twice as many. Filling the batch and emptying it
    takes the same time in both runs, so the difference is the time of `count` requests.
    """
    once, twice = (
        max(row.finished for row in serve(machine, policies, traffic.crowd(count, times)).requests)
        for times in (1, 2)
    )
    return count * SECOND / max(1, twice - once)


def highest_rate(holds: Callable[[float], bool], low: float, high: float, trials: int) -> float:
    """The largest value that `holds`, by bisection of ratios, if all smaller values do too.

    low is assumed to hold; 0 < low < high. trials: how often the range is halved.
    """
    for _ in range(trials):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def largest_count(holds: Callable[[int], bool], guess: int) -> int:
    """The largest whole number that `holds`, if all smaller ones do too.

    guess: where the search starts.
    """
    low, reach = guess, max(1, guess // 16)
    while low > 0 and not holds(low):
        low, reach = max(0, low - reach), 2 * reach
    high = low + max(1, low // 16)
    while holds(high):
        low, high = high, high + 2 * (high - low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
