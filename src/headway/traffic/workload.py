"""Who asks for what and when: recorded and synthetic arrivals, with seeded prompts."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from random import Random

from headway.core.request import Request
from headway.costing.token_cost import Ask, Cut, Price, cut
from headway.errors import SettingError
from headway.traffic.endpoint import COMPLETION, LABELLING, SUPPORT, VOICE
from headway.traffic.trace import PREFIX_TOKENS, Arrival

TOKEN_SCALE = 8  # recorded token counts are divided by this
# Device-seconds per second, so that the demo weighs the same on any machine. Together about what
# static batching can just sustain: padding and held slots take two thirds of what it computes.
TRACE_LOAD, VOICE_LOAD, BACKLOG_LOAD = 0.24, 0.03, 0.03
LOAD = TRACE_LOAD + VOICE_LOAD + BACKLOG_LOAD
VOICE_PROMPT, VOICE_ANSWER = (16, 48), (8, 24)  # tokens: least and most, uniformly
VOICE_SAMPLE = 200  # of its requests, that its shape is taken from
BACKLOG_MOST = 2_000  # requests
WARM_UP = 0.1  # of a comparison's window


@dataclass(frozen=True, slots=True)
class Workload:
    """What every strategy is offered: the same requests at the same moments."""

    requests: tuple[Request, ...]  # by arrival, nanoseconds from the beginning of the run
    window: int  # nanoseconds: arrivals end here
    time_scale: float  # seconds of the trace per second of the run
    load: float  # predicted device-seconds per second, at full batches
    trace_ends: bool  # all of a trace is in it
    cut: Cut = Cut()

    @property
    def rate(self) -> float:
        """Requests per second, of all endpoints together."""
        return len(self.requests) * 1e9 / self.window

    @property
    def warm_up(self) -> int:
        """Nanoseconds at the beginning whose arrivals are served and not counted; 0 where all are
        there at once."""
        return round(self.window * WARM_UP) if any(each.arrived for each in self.requests) else 0

    def count(self, lane: str) -> int:
        return sum(request.lane == lane for request in self.requests)


class Prompts:
    """Windows of a text at seeded places. No two begin with the same block.

    So that nothing is won from the prefix cache by accident: a shared prefix would have to
    share its first block.
    """

    def __init__(self, text: Sequence[int], block_size: int, seed: int) -> None:
        self.text, self.block_size, self.seed = text, block_size, seed
        self._seen: set[tuple[int, ...]] = set()
        self._draws: dict[str, Random] = {}

    def draw(self, lane: str, length: int) -> tuple[int, ...]:
        last = len(self.text) - max(length, self.block_size)
        draw = self._draws.setdefault(lane, Random(f"{self.seed} prompts {lane}"))
        for _ in range(1_000 if last >= 0 else 0):
            at = draw.randint(0, last)
            first = tuple(self.text[at : at + self.block_size])
            if first not in self._seen:
                self._seen.add(first)
                return tuple(self.text[at : at + length])
        raise self._too_short(length)

    def shared(self, ask: Ask) -> tuple[int, ...]:
        """Made of its blocks, each always the same words: what begins alike is shared indeed."""
        words = list[int]()
        for block in ask.blocks[: -(-ask.prompt // ask.block)]:
            last = len(self.text) - ask.block
            if last < 0:
                raise self._too_short(ask.block)
            at = Random(f"{self.seed} block {block}").randint(0, last)
            words += self.text[at : at + ask.block]
        short = ask.prompt - len(words)
        rest = self.draw(ask.lane, short) if short > 0 else ()
        return (*words[: ask.prompt], *rest)

    def _too_short(self, length: int) -> SettingError:
        return SettingError(
            f"a text of {len(self.text)} tokens is too short for {len(self._seen) + 1} prompts "
            f"of up to {length} tokens that do not begin alike"
        )


def scaled(
    trace: Iterable[Arrival], lane: str, context: int, scale: float = TOKEN_SCALE
) -> list[Ask]:
    """Recorded arrivals, their token counts divided by the scale and cut to the context."""
    asks, block = [], max(1, round(PREFIX_TOKENS / scale))
    for arrival in trace:
        prompt, answer = (max(1, round(each / scale)) for each in (arrival.prompt, arrival.answer))
        asks.append(fitted(Ask(arrival.at, lane, prompt, answer, arrival.blocks, block), context))
    return asks


def fitted(ask: Ask, context: int) -> Ask:
    """Cut to the context, of which an answer gets half at most."""
    answer = min(ask.answer, context // 2)
    prompt = min(ask.prompt, context - answer)
    cut = ask.prompt + ask.answer - prompt - answer
    return replace(ask, prompt=prompt, answer=answer, cut=cut) if cut else ask


def raised(trace: Iterable[Arrival], scale: float = TOKEN_SCALE) -> int:
    """How many of its token counts come to 0, and are 1 in what `scaled` makes of them."""
    return sum(round(each / scale) < 1 for one in trace for each in (one.prompt, one.answer))


def voice(gap: float, window: int, seed: int) -> list[Ask]:
    """Synthetic: Poisson arrivals at this mean gap in nanoseconds, short prompts and answers."""
    draw, at, asks = Random(f"{seed} voice"), 0.0, list[Ask]()
    while (at := at + draw.expovariate(1 / gap)) < window:
        asks.append(
            Ask(int(at), VOICE.name, draw.randint(*VOICE_PROMPT), draw.randint(*VOICE_ANSWER))
        )
    return asks


def labelling(seed: int) -> Iterator[Ask]:
    """Synthetic and endless: a text to read, a label to write; all are there at the beginning."""
    draw = Random(f"{seed} labelling")
    while True:
        yield Ask(0, LABELLING.name, draw.randint(64, 192), draw.randint(2, 8))


def merged(traces: Mapping[str, Sequence[Arrival]], context: int) -> list[Ask]:
    """Two services' recorded arrivals as if they had begun together, in order."""
    recorded = scaled(traces[COMPLETION.name], COMPLETION.name, context)
    recorded += scaled(traces[SUPPORT.name], SUPPORT.name, context)
    return sorted(recorded, key=lambda ask: ask.at)


def paced(
    recorded: Sequence[Ask], price: Price, window: int, load: float = TRACE_LOAD
) -> tuple[list[Ask], int]:
    """As much of the trace as makes this load when it is replayed within the window.

    The arrivals of its first so many nanoseconds, in which their work is load x window,
    are spread over the window with one factor; none is dropped. Returns them at their new times,
    and how many nanoseconds of the trace they are.
    """
    if not recorded:
        raise SettingError("the trace has no arrivals")
    spent = list(accumulate(price.of([ask]) for ask in recorded))
    count = min(bisect_left(spent, load * window) + 1, len(recorded))
    span = recorded[count].at if count < len(recorded) else recorded[-1].at + 1
    return [replace(ask, at=ask.at * window // span) for ask in recorded[:count]], span


def backlog(price: Price, window: int, seed: int, load: float = BACKLOG_LOAD) -> list[Ask]:
    """As much labelling as makes this load, or as a lane lets wait with room to spare."""
    budget, asks = load * window, list[Ask]()
    for ask in islice(labelling(seed), BACKLOG_MOST):
        asks.append(ask)
        if (budget := budget - price.of([ask])) <= 0:
            break
    return asks


def build(
    recorded: Sequence[Ask], prompts: Prompts, price: Price, window: int, load: float = LOAD
) -> Workload:
    """Requests with words. The same seed, price and window give the same requests.

    load: of all together; their proportions stay.
    """
    times = load / LOAD
    typical = Ask(0, VOICE.name, sum(VOICE_PROMPT) // 2, sum(VOICE_ANSWER) // 2)
    spoken = voice(price.of([typical]) / (VOICE_LOAD * times), window, prompts.seed)
    chosen, span = paced(recorded, price, window, TRACE_LOAD * times)
    offline = backlog(price, window, prompts.seed, BACKLOG_LOAD * times)
    asks = sorted([*offline, *spoken, *chosen], key=lambda ask: ask.at)
    return Workload(
        requests=worded(asks, prompts),
        window=window,
        time_scale=span / window,
        load=price.of(asks) / window,
        trace_ends=len(chosen) == len(recorded),
        cut=cut(asks),
    )


def worded(asks: Iterable[Ask], prompts: Prompts) -> tuple[Request, ...]:
    """No stop tokens: each answer is as long as its ask says."""
    numbers: dict[str, int] = {}
    requests = []
    for ask in asks:
        number = numbers[ask.lane] = numbers.get(ask.lane, 0) + 1
        prompt = prompts.shared(ask) if ask.blocks else prompts.draw(ask.lane, ask.prompt)
        requests.append(Request(f"{ask.lane}-{number}", prompt, ask.answer, ask.at, ask.lane))
    return tuple(requests)


def shape(asks: Iterable[Ask], lane: str, context: int) -> Ask:
    """A lane's long request: 95 of 100 prompts are no longer, and its mean answer. Both together
    are cut to the context, as each request was by itself."""
    mine = [ask for ask in asks if ask.lane == lane]
    prompts = sorted(ask.prompt for ask in mine)
    answer = max(2, round(sum(ask.answer for ask in mine) / len(mine)))
    return Ask(0, lane, min(prompts[-(-len(prompts) * 95 // 100) - 1], context - answer), answer)
