"""The cost model (StepCost): features of a step to nanoseconds.

Features add up over rows, so that a step can be priced before it is built. Prices do not add up:
the price of a token depends on how many tokens the step has, after the executor has rounded their
number up (`pieces`, `rounding`). Four rates are paid once per step: `step`, `decode`, `prefill` and
`head`. And some keys are read for a row only because its neighbours are longer (`gathering`).

All numbers are integers: rates are picoseconds per feature, predictions are nanoseconds. A step's
time is the sum of the device's and the host's. What the host does after a step, before the next
one can begin, is a third account. The features are those of Vidur (MLSys 2024), for a whole step
and not for each operator. `headway calibrate` fits the rates; a price needs no such tool.
"""

from dataclasses import dataclass, replace

from headway.core.cost.features import Features
from headway.core.cost.gathering import UNPADDED, Gathering

WHOLE = 1_000  # thousandths: residuals, drift and the echoes' shares are counted in them
MEMORY_BOUND, COMPUTE_BOUND = 0, 1  # regimes of a step: up to the knee, and above it


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in picoseconds, none of them negative."""

    step: int = 0
    token: int = 0
    row: int = 0
    prompt: int = 0
    read: int = 0
    pair: int = 0
    logit: int = 0
    decode: int = 0
    prefill: int = 0  # once, if any row has more than one position
    head: int = 0  # once, if any logits are computed: the head has many weights

    def of(self, f: Features) -> int:
        """Picoseconds of these features."""
        tokens, rows, prompts, reads, pairs, logits, decodes = f
        return (
            self.step
            + self.token * tokens
            + self.row * rows
            + self.prompt * prompts
            + self.read * reads
            + self.pair * pairs
            + self.logit * logits
            + self.decode * decodes
            + (self.prefill if prompts else 0)
            + (self.head if logits else 0)
        )


@dataclass(frozen=True, slots=True)
class Residuals:
    """How much steps differ from their prediction: measured over predicted, in thousandths."""

    quantiles: tuple[int, ...] = (WHOLE,)  # at equal distances, from the smallest to the largest

    def at(self, share: float) -> int:
        """Thousandths that this share of the steps, 0 to 1, does not exceed."""
        quantiles = self.quantiles
        last = len(quantiles) - 1
        if (below := int(place := share * last)) >= last:
            return quantiles[last]
        low = quantiles[below]
        return low + round((quantiles[below + 1] - low) * (place - below))


@dataclass(frozen=True, slots=True)
class Echo:
    """A cause that makes many steps in a row differ: a busy neighbour, a lowered clock."""

    share: int  # of the residuals' variance, in thousandths
    lasts: int  # nanoseconds after which 1/e of its effect is left


@dataclass(frozen=True, slots=True)
class Rounding:
    """How an executor rounds up the number of tokens that it computes, so that its device meets
    few sizes, and none at which it is slow."""

    least: int = 1  # tokens
    digits: int = 0  # leading binary digits that are kept; 0: all
    tile: int = 1  # tokens that matrix products compute at once, even if there are fewer

    @property
    def is_exact(self) -> bool:
        """Whether the number of tokens is never rounded up."""
        return self.least <= 1 and not self.digits

    def of(self, tokens: int) -> int:
        """How many tokens are computed for this many; 0 for 0."""
        if self.digits:
            step = 1 << max(0, (tokens - 1).bit_length() - self.digits)
            tokens = -(-tokens // step) * step
        return max(self.least, tokens) if tokens else 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """The prices of a device and its host. All zeros: nothing is known of them.

    The price of the tokens follows the hardware. Each of `pieces` is a range of the step's token
    count and what a token costs in it. A token costs little while reading the weights takes
    longest, and more above the `knee`, where the matrix products do.

        picoseconds |          ____/      slope 2
                    |    _____/           slope 1
                    |___/
                    '---|-------|-------- tokens
    """

    device: Rates = Rates()
    pieces: tuple[tuple[int, int], ...] = ()  # (tokens from which, ps per token), ascending from 0
    tile: int = 0  # ps for each of the rounding's tiles that the step's tokens begin
    host: Rates = Rates()  # in a step: deciding it, preparing inputs, sampling
    after: Rates = Rates()  # after it: committing it, telling callers, keeping rows
    wake: int = 0  # extra nanoseconds of the first step after a long sleep
    wake_tail: tuple[int, ...] = ()  # extra nanoseconds of each step after that one
    cooling: int = 0  # nanoseconds of a long sleep; a shorter one adds its share of these two
    turn: int = 0  # extra nanoseconds of a step without prompts after one with prompts
    knee: int = 0  # tokens above which a step is compute-bound
    rounding: Rounding = Rounding()  # of the step's tokens; the pieces price the result
    gathering: Gathering = UNPADDED  # the features must be counted with it
    residuals: tuple[Residuals, Residuals] = (Residuals(), Residuals())  # by regime
    echoes: tuple[Echo, ...] = ()  # of both regimes; what is left is each step's own

    @classmethod
    def of(cls, base: int, per_token: int = 0, per_pair: int = 0) -> "StepCost":
        """A cost model of the three rates that matter most, in nanoseconds; no residuals."""
        return cls(Rates(base * 1_000, pair=per_pair * 1_000), ((0, per_token * 1_000),))

    @property
    def is_known(self) -> bool:
        """Whether there is any price in it."""
        return self != StepCost()

    def predict(self, features: Features) -> int:
        """Nanoseconds of a step, device and host."""
        return self.picoseconds(features) // 1_000

    def picoseconds(self, f: Features) -> int:
        """Picoseconds of a step, device and host."""
        return self.device.of(f) + self._tokens(f.tokens) + self.host.of(f)

    def on_host(self, features: Features) -> int:
        """The part of a step's nanoseconds in which the device waits for the host."""
        return self.host.of(features) // 1_000

    def behind_another(self, features: Features) -> int:
        """Nanoseconds of a step that was decided while another was computed: the host did its part
        meanwhile."""
        return self.predict(features) - self.on_host(features)

    def behind(self, features: Features) -> int:
        """The host's nanoseconds after a step, before the next one can begin."""
        return self.after.of(features) // 1_000

    def more(self, slept: int, since: int, turned: bool) -> int:
        """Extra nanoseconds of a step because of what came before it.

        slept: nanoseconds of the last sleep. since: steps between that sleep and this step. turned:
        this is the first step without prompts after one with prompts.
        """
        turn = self.turn if turned and since else 0
        if since > len(self.wake_tail):
            return turn
        woken = self.wake_tail[since - 1] if since else self.wake
        if slept < self.cooling:
            woken = woken * slept // self.cooling
        return max(woken, turn)

    def quantile(self, features: Features, share: float) -> int:
        """Nanoseconds that this share of such steps, 0 to 1, does not exceed."""
        return self.predict(features) * self.residuals[self.regime(features)].at(share) // WHOLE

    def without_tiles(self) -> "StepCost":
        """This model without the stairs of its tiles: a line through their middles in `pieces`."""
        if not self.tile:
            return self
        size, slopes = self.rounding.tile, dict(self.pieces)
        middle, slope, pieces = size // 2, 0, list[tuple[int, int]]()
        for begin in sorted({0, middle, *slopes}):
            slope = slopes.get(begin, slope)
            pieces.append((begin, slope + (self.tile // size if begin >= middle else 0)))
        device = replace(self.device, step=self.device.step + self.tile)
        return replace(self, device=device, pieces=tuple(pieces), tile=0)

    def regime(self, features: Features) -> int:
        """MEMORY_BOUND or COMPUTE_BOUND."""
        return COMPUTE_BOUND if features.tokens > self.knee else MEMORY_BOUND

    def _tokens(self, tokens: int) -> int:
        """Picoseconds of this many tokens: the area under the pieces, and the tiles."""
        tokens = self.rounding.of(tokens)
        total = self.tile * -(-tokens // self.rounding.tile) if self.tile else 0
        for begin, slope in reversed(self.pieces):
            if tokens > begin:
                total += slope * (tokens - begin)
                tokens = begin
        return total
