"""When a prompt will have been computed, after those that go before it (Outlook)."""

from collections.abc import Collection
from dataclasses import dataclass

from headway.core.cost.features import NONE
from headway.core.lane import Line
from headway.core.planning.candidates import in_order
from headway.core.planning.lane_limits import LaneLimits
from headway.core.planning.plan import Plan
from headway.core.request import NEVER
from headway.core.sequences.sequence import Sequence
from headway.core.view import View

IMAGINED = NEVER  # a sequence with this number or a higher one is imagined: it has no caller
LONGEST = 1_000_000  # steps, at most: more say only that there is hardly any time for prompts


@dataclass(frozen=True, slots=True)
class Ahead:
    """Sums over the sequences that go before a sequence, and over that one itself."""

    work: int = 0  # nanoseconds of their prompts, without the drift
    tokens: int = 0  # of their prompts
    joins: int = 0  # how many of them wait
    blocks: int = 0  # that the waiting ones need
    short: int = 0  # slots that the sequence's own lane lacks for it and those before it there


class Outlook:
    """The steps after the one that was chosen last, as far as the known requests decide them.

    Prompts are computed in the order policy's order, as many in a step as the chunk policy allows
    beside the decodes. A waiting sequence also needs a slot and blocks. If there are too few, they
    come free as answers end, at their expected lengths. Requests that come later are unknown.

    A lane may have a most of slots. Sequences for which it has none left wait for answers of that
    lane, and do not count for those of other lanes.
    """

    def __init__(self, plan: Plan, lines: tuple[Line, ...]) -> None:
        """plan: of the chosen step. lines: the waiting sequences, and imagined ones."""
        self.policies, self._shares, self._allow = plan.policies, plan.shares, plan.allowance
        self._limits = LaneLimits(plan.roster, plan.pool)  # after the step
        self.view = view = plan.view._replace(lines=lines, free_blocks=plan.pool.num_free)
        self._decoding = [s for s in view.running if self._will_decode(s)]
        self._empty = view.estimates.predict(NONE)  # nanoseconds of a step without rows
        self._decode = self._step_of(self._decoding)
        # The same for the decodes that cannot miss a step in which prompts are computed.
        joins, defer = plan.joins, plan.policies.defer
        deferred = plan.deferred if joins else defer.deferred(view, joins=True)
        self._pressing = [s for s in self._decoding if s not in deferred]
        self._press = self._step_of(self._pressing) if deferred else self._decode
        # By tier, made only if needed:
        self._held: dict[int, tuple[int, int]] = {}
        self._ends: dict[int, list[tuple[int, Sequence]]] = {}
        self._of_lane: dict[str, list[int]] = {}  # steps that its running ones have left, ascending

    def _left(self, sequence: Sequence) -> int:
        """The sequence's tokens that this step does not compute."""
        return sequence.pending - self._shares.get(sequence, 0)

    def _will_decode(self, sequence: Sequence) -> bool:
        """Whether the sequence needs only its next token in the steps after this one."""
        if self._left(sequence) > 0:
            return sequence.pending == 1
        return len(sequence.tokens) + 1 < sequence.limit  # else it ends with this step

    def _step_of(self, decoding: list[Sequence]) -> int:
        """Nanoseconds of a step in which only these sequences decode."""
        if not decoding:
            return self._empty
        keys = sum([len(sequence.tokens) + 1 for sequence in decoding])
        return self.view.estimates.decoding(len(decoding), keys)

    def waits(self, sought: Collection[Sequence]) -> dict[Sequence, int]:
        """Nanoseconds from the end of this step until each sought prompt is computed."""
        view, shares, price = self.view, self._shares, self.view.estimates.work
        found: dict[Sequence, int] = {}
        work = tokens = joins = blocks = 0  # of the sequences that go before
        running = {sequence.number for sequence in view.running}
        room = {line.lane.name: line.most_running - line.running for line in view.lines}
        prompts = [s for s in view.running if len(s.tokens) - s.scheduled > 1]
        seen: set[Sequence] = set()  # an order may name a sequence twice
        for sequence in in_order(self.policies, view, prompts, self._limits):
            pending = len(sequence.tokens) - sequence.scheduled
            if (left := pending - shares.get(sequence, 0)) <= 0 or sequence in seen:
                continue
            seen.add(sequence)
            before, short = (work, tokens, joins, blocks), 0
            if sequence.number not in running:
                short = -room[sequence.request.lane] + 1
                room[sequence.request.lane] -= 1
                left -= sequence.shared  # its leader computes these, once
                joins += 1
                blocks += -(-(len(sequence.tokens) - sequence.shared) // view.block_size)
            work += price(sequence) * left // pending
            tokens += left
            if sequence in sought:
                ahead = Ahead(work, tokens, joins, blocks, short)
                found[sequence] = self._until_computed(sequence, ahead)
                if len(found) == len(sought):
                    break
            if short > 0 or sequence.number >= IMAGINED:
                work, tokens, joins, blocks = before
        return found

    def _until_computed(self, sequence: Sequence, ahead: Ahead) -> int:
        """Nanoseconds to compute the prompts or to get a slot and blocks: the longer of the two."""
        work, beside = self.view.estimates.drifted(ahead.work), self._beside()
        steps = -(-ahead.tokens // self._tokens_of_a_step(sequence))
        if self._allow.nanoseconds != NEVER:
            least = work * self._allow.least // ahead.tokens
            spare = max(1, least, self._allow.nanoseconds - beside)
            steps = max(steps, -(-work // spare))
        computing = work + min(LONGEST, steps) * beside
        free = self._until_free(sequence, ahead)
        if ahead.short > 0:
            free = max(free, self._until_lane_is_free(sequence, ahead.short))
        if not free:
            return computing
        return max(computing, free + self.view.estimates.first_token(sequence))

    def _beside(self) -> int:
        """Nanoseconds that each step with prompts spends on anything else."""
        busy = View(self.view.now, self.view.lines, self.view.running, prefilled=True)
        kinds = self.policies.mix.choices(busy)[0]
        if not self._decoding or not kinds.decode:
            return self._empty
        return self._press if kinds.prefill else self._empty + self._decode

    def _tokens_of_a_step(self, sequence: Sequence) -> int:
        """Prompt tokens of a step, at most."""
        lane = {line.lane.name: line.lane for line in self.view.lines}[sequence.request.lane]
        most = min(self._allow.tokens, lane.chunk, self.policies.step_tokens - len(self._pressing))
        if lane.step_tokens.most != NEVER:
            beside = [s for s in self._pressing if s.request.lane == lane.name]
            most = min(most, lane.step_tokens.most - len(beside))
        return max(1, most)

    def _until_free(self, sequence: Sequence, ahead: Ahead) -> int:
        """Nanoseconds until there are slots and blocks for the sequence and those before it."""
        if not ahead.joins:
            return 0
        across = getattr(self.policies.preempt, "across", False)
        tier = sequence.tier if across else NEVER
        running, given = self._holders(tier)
        slots = (self.policies.slots or NEVER) - running
        short, blocks = ahead.joins - slots, ahead.blocks - self.view.free_blocks - given
        if short <= 0 and blocks <= 0:
            return 0
        held, pace = self._ending(tier), self._pace(sequence)
        for count, (left, holder) in enumerate(held, 1):
            blocks -= len(holder.blocks)
            if count >= short and blocks <= 0:
                return left * pace
        # The running ones do not free enough: sequences that join meanwhile have to end, too.
        longest = max([left for left, _ in held], default=1)
        return longest * pace * max(1, short) // max(1, len(held))

    def _until_lane_is_free(self, sequence: Sequence, short: int) -> int:
        """Nanoseconds until so many slots of its own lane have come free."""
        lane = sequence.request.lane
        if lane not in self._of_lane:
            mine = [s for s in self.view.running if s.request.lane == lane]
            self._of_lane[lane] = sorted(map(self._steps_left, mine))
        held = self._of_lane[lane]
        if short <= len(held):
            return held[short - 1] * self._pace(sequence)
        return max(held, default=1) * self._pace(sequence) * short // max(1, len(held))

    def _pace(self, sequence: Sequence) -> int:
        """Nanoseconds from one token to the next of the answers that it waits for."""
        return max(self._decode, self.view.estimates.promises.paces.of(sequence.request.lane))

    def _holders(self, tier: int) -> tuple[int, int]:
        """How many sequences up to this tier run, and the blocks that later tiers give back."""
        if tier not in self._held:
            later = [len(s.blocks) for s in self.view.running if s.tier > tier]
            self._held[tier] = len(self.view.running) - len(later), sum(later)
        return self._held[tier]

    def _ending(self, tier: int) -> list[tuple[int, Sequence]]:
        """The running sequences up to this tier, each with the steps it is expected to have left,
        the fewest first, then by number."""
        if tier not in self._ends:
            self._ends[tier] = sorted(
                [(self._steps_left(s), s) for s in self.view.running if s.tier <= tier],
                key=lambda each: (each[0], each[1].number),
            )
        return self._ends[tier]

    def _steps_left(self, sequence: Sequence) -> int:
        """Steps after this one until the sequence has probably ended."""
        left, _ = self.view.estimates.lengths.left(sequence, 0.5)
        return left - int(self._left(sequence) <= 0)
