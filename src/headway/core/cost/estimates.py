"""What is learned while serving (Estimates). All it sees is handed in: a replay learns the same."""

from collections import defaultdict
from collections.abc import Iterable

from headway.core.batch import Batch
from headway.core.cost.call_cost import CallCost
from headway.core.cost.features import Features, batch_features, row_features
from headway.core.cost.lane_sizes import LaneSizes
from headway.core.cost.lengths import ALLOWED, LEARNED, Lengths
from headway.core.cost.promise import Promise
from headway.core.cost.promises import SURE, Promises
from headway.core.cost.step_cost import WHOLE, StepCost
from headway.core.lane import Line
from headway.core.request import BY_ITSELF, BY_TOKENS, NEVER, Finish
from headway.core.sequences.sequence import Sequence

EVERY = 16  # one step in this many is compared: pricing each would take a tenth of deciding it
SLOWNESS = 32  # comparisons in which drift follows most of a change: about 500 steps
LEAST, MOST = 500_000, 2_000_000  # millionths: beyond these the model is wrong, not the drift
DRAIN_DECAY = 32  # steps that start a request until a drain rate's past has mostly faded
PREFILL_DECAY = 32  # requests until the past of prefill times has mostly faded


class Drain:
    """How fast a line drains into the batch: prompt tokens started per time in which some waited.

    Both counts fade at the same pace, so a long wait has the weight of its length. They fade only
    in steps that start a request of the line: the rate of a line that stands still just sinks.
    """

    def __init__(self) -> None:
        # Thousandths of tokens, because fewer than DRAIN_DECAY whole ones would never fade.
        self.millitokens = self.nanoseconds = 0
        self._seen = 0  # prompt tokens that the line had started by the last call

    def see(self, line: Line, nanoseconds: int) -> None:
        """Count what the line started in a step of this many nanoseconds.

        The time counts only if a request of the line started or is waiting.
        """
        if new := line.started - self._seen:
            self._seen = line.started
            self.millitokens += 1_000 * new - self.millitokens // DRAIN_DECAY
            self.nanoseconds += nanoseconds - self.nanoseconds // DRAIN_DECAY
        elif len(line):
            self.nanoseconds += nanoseconds


class Estimates:
    """The drift (measured over predicted step time), drain rates and prefill time. The parts in
    `calls`, `lengths`, `promises` and `sizes` learn the rest.

    Drift corrects the cost model when a machine grows warm or gets a busy neighbour. It is a slow
    exponential mean, so that a burst of slow steps moves it little. It is bounded, because a larger
    difference means that the cost model is wrong.
    """

    def __init__(self, cost: StepCost, calls: bool = False) -> None:
        """calls: steps are calls of a function."""
        self.cost = cost
        self.calls = CallCost() if calls else None
        self._drift = 1_000_000  # millionths
        self.is_known = cost.is_known
        # A step above the last bend: a token costs what it costs in the largest steps.
        self._even = cost.without_tiles()
        begins = [begin for begin, _ in self._even.pieces]
        self._full = Features(max([0, *begins]), 1, 1, 0, 0, 1, 1)
        self._full_price = self._even.predict(self._full)
        self._shortest = cost.predict(row_features(0, 1, 1))
        self.shortest = self._shortest  # nanoseconds of a step of one token; 0: no cost model
        self._drains: defaultdict[str, Drain] = defaultdict(Drain)  # by lane
        self._alone: dict[int, int] = {}  # by tokens: prompt_alone, without the drift
        self.lengths, self.promises, self.sizes = Lengths(), Promises(), LaneSizes()
        self._prompts = 0  # prompt tokens, in thousandths
        self._prefills = 0  # nanoseconds from their starts to their first tokens

    @property
    def drift(self) -> int:
        """Measured over predicted step time, in thousandths; 0: there is no cost model."""
        return self._drift // (1_000_000 // WHOLE) if self.is_known else 0

    def looks_at(self, step: int) -> bool:
        """Whether this step is one of those that are compared with the cost model."""
        return self.is_known and step % EVERY == 0

    def until_look(self, step: int) -> int:
        """How many steps it is from this one to the next that is compared."""
        return EVERY - step % EVERY

    def see(self, batch: Batch, nanoseconds: int, took: int = 0, *, behind: bool = False) -> None:
        """Learn from a step: the drift if the step is compared (`looks_at`), and the cost of a call
        if it is one. took: nanoseconds of the computation alone (Output), which is what a call
        costs. behind: the step was decided while another was computed."""
        if self.looks_at(batch.step):
            features = batch_features(batch, self.cost.gathering)
            self.learn(features, nanoseconds, behind=behind)
        if self.calls is not None and batch.rows[0].start == 0:  # only the first step of a call
            self.calls.see(batch.tokens + batch.waste, took or nanoseconds)

    def learn(self, features: Features, nanoseconds: int, *, behind: bool = False) -> None:
        """Learn the drift from the time of a step with these features. behind: as in `see`."""
        predicted = self.cost.behind_another(features) if behind else self.cost.predict(features)
        seen = nanoseconds * 1_000_000 // max(1, predicted)
        seen = min(MOST, max(LEAST, seen))
        self._drift += (seen - self._drift) // SLOWNESS
        self.shortest = self.drifted(self._shortest)

    def drain(self, lines: Iterable[Line], nanoseconds: int) -> None:
        """Learn drain rates from the time of one step, or of several that started no request."""
        for line in lines:
            self._drains[line.lane.name].see(line, nanoseconds)

    def drain_rate(self, lane: str) -> float:
        """Prompt tokens that start per second while some wait; 0: not known yet."""
        drain = self._drains.get(lane)
        return drain.millitokens * 1e6 / max(1, drain.nanoseconds) if drain else 0.0

    def ended(self, sequence: Sequence, finish: Finish, now: int) -> None:
        """Learn from a sequence that has ended: the length and pace of its answer, what came of its
        promise, and how long its prompt took."""
        lane, whole = sequence.request.lane, finish in BY_ITSELF
        if finish in BY_TOKENS:
            self.lengths.ended(sequence)
            if self.is_known and (gaps := sequence.generated - 1) > 0:
                spent = sequence.last_token - sequence.first_token
                self.promises.paces.ended(lane, spent, gaps)
        elif finish is Finish.EXPIRED and sequence.generated:
            self.lengths.cut(sequence)
        if self.is_known:
            self.promises.ended(lane, sequence.promise, now, whole=whole)
        if sequence.first_token != NEVER:
            spent = sequence.first_token - sequence.first_scheduled
            self._prompts += 1_000 * len(sequence.request.prompt) - self._prompts // PREFILL_DECAY
            self._prefills += spent - self._prefills // PREFILL_DECAY

    def first_came(self, sequence: Sequence) -> None:
        """Learn from a sequence whose first token has come."""
        lane, promise = sequence.request.lane, sequence.promise
        self.promises.first_came(lane, promise, sequence.first_token)

    @property
    def prefill(self) -> int:
        """Nanoseconds from start to first token, per token of the prompt; 0: not known yet."""
        return 1_000 * self._prefills // max(1, self._prompts)

    def predict(self, features: Features) -> int:
        """Nanoseconds of a step, corrected by the drift."""
        return self.drifted(self.cost.predict(features))

    def behind_another(self, features: Features) -> int:
        """As `predict`, for a step that is decided while another is computed."""
        return self.drifted(self.cost.behind_another(features))

    def surely(self, features: Features, share: float) -> int:
        """Nanoseconds that this share of such steps do not exceed, corrected by the drift."""
        residuals = self.cost.residuals[self.cost.regime(features)]
        return self.predict(features) * residuals.at(share) // WHOLE

    def drifted(self, nanoseconds: int) -> int:
        """A price, corrected by the drift."""
        return nanoseconds * self._drift // 1_000_000

    def decoding(self, rows: int, keys: int) -> int:
        """Nanoseconds of a step of this many rows of one token, which read `keys` keys in all."""
        return self.predict(Features(rows, rows, 0, keys, keys, rows, 1))

    def first_token(self, sequence: Sequence) -> int:
        """Nanoseconds until its first token if its prompt were computed now, alone."""
        self.work(sequence)
        return self.drifted(sequence.alone)

    def prompt_alone(self, tokens: int) -> int:
        """Nanoseconds of a step that computes a prompt of this many tokens, and nothing else."""
        if tokens not in self._alone:
            self._alone[tokens] = self.cost.predict(row_features(0, tokens, 1))
        return self.drifted(self._alone[tokens])

    def pace(self, lane: str) -> int:
        """Nanoseconds from one token of an answer to the next, in this lane at present."""
        return max(self.shortest, self.promises.paces.of(lane))

    def last_first_token(self, sequence: Sequence) -> int:
        """When its next token must come for its answer to end in time, at its lane's pace; NEVER:
        it has no time to end by. If its length is unknown, the next token counts as the last.

        The rest of the answer counts for at most half of the time from arrival to deadline. Else,
        where only short answers can be in time, every request would be late on arrival.
        """
        by, request = sequence.done_by, sequence.request
        if by == NEVER:
            return NEVER
        left = self.lengths.left(sequence, SURE)[0] if self.lengths.knows(sequence) else 1
        return by - min((left - 1) * self.pace(request.lane), (by - request.arrived) // 2)

    def work(self, sequence: Sequence) -> int:
        """Nanoseconds that the sequence's uncomputed tokens add to a step that is full already.
        Tokens found in the prefix cache count as computed.

        The drift is left out: it changes all sequences' work alike.
        """
        start = sequence.scheduled or sequence.hit
        end = len(sequence.tokens)
        if start != sequence.priced_from or end != sequence.priced_to:
            own = row_features(start, end - start, 1)
            sequence.priced_from, sequence.priced_to = start, end
            sequence.alone = self.cost.predict(own)
            sequence.work = self._even.predict(self._full + own) - self._full_price
        return sequence.work

    def promise(self, sequence: Sequence, now: int, after: int, wait: int) -> Promise:
        """The promise made to a request now. Its prompt is predicted to be computed `wait`
        nanoseconds after a step that ends at `after`."""
        lane, promises = sequence.request.lane, self.promises
        computed = after + promises.wait(lane, wait)
        left, basis = 1, ""
        if sequence.request.max_tokens:
            left, basis = self.lengths.left(sequence, SURE)
            if basis == LEARNED and promises.is_young(lane):
                left, basis = sequence.request.max_tokens - sequence.generated, ALLOWED
        pace = promises.paces.of(lane) or after - now
        span = computed - now + (left - 1) * pace
        # The median first token does not come later than nine in ten answers end.
        end = max(after, now + promises.span(lane, basis, span, now))
        first = min(computed, end) if sequence.request.max_tokens else NEVER
        return Promise(now, first, end, after, wait, span, basis)

    def promised(self, sequence: Sequence) -> None:
        """Note a promise that the caller is told: it will be compared with what comes."""
        request = sequence.request
        self.promises.made(request.lane, len(request.prompt), sequence.promise)
