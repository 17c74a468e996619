"""What a step costs. Its rows' features add up, so that a step can be sized before it is built.

The price of a step is not the sum of its rows' prices. What a token costs depends on how many the
step has, rounded up as the executor does (`pieces`, `rounding`). Four rates of `Rates` are paid
once a step: `step`, `decode`, `prefill` and `head`. And what is read for a row only because
its neighbours are longer is nobody's own (`gathering`).

All is integer: coefficients are picoseconds per feature, and predictions nanoseconds. A step's
time is the device's and the host's; what the host does behind a step, before the next one can
begin, is a third account. The features are those of Vidur (MLSys 2024) for a whole step instead
of each operator; fitted by `headway calibrate`, which is not needed to evaluate them.
"""

from dataclasses import dataclass

from headway.core.cost.features import Features
from headway.core.cost.gathering import UNPADDED, Gathering

WHOLE = 1_000  # thousandths: residuals, drift and the echoes' shares are counted in them
MEMORY_BOUND, COMPUTE_BOUND = 0, 1  # regimes of a step: up to the knee, and above it


@dataclass(frozen=True, slots=True)
class Rates:
    """Picoseconds, none of them negative."""

    step: int = 0
    token: int = 0
    row: int = 0
    prompt: int = 0
    read: int = 0
    pair: int = 0
    logit: int = 0
    decode: int = 0
    prefill: int = 0  # once, where any row has more than one position
    head: int = 0  # once, where any logits are computed: its weights are many

    def of(self, f: Features) -> int:
        return (
            self.step
            + self.token * f.tokens
            + self.row * f.rows
            + self.prompt * f.prompts
            + self.read * f.reads
            + self.pair * f.pairs
            + self.logit * f.logits
            + self.decode * f.decodes
            + (self.prefill if f.prompts else 0)
            + (self.head if f.logits else 0)
        )


@dataclass(frozen=True, slots=True)
class Residuals:
    """By how much steps differ from their prediction: thousandths of it."""

    quantiles: tuple[int, ...] = (WHOLE,)  # at equal distances, from the least to the most

    def at(self, share: float) -> int:
        """Thousandths that this share of the steps does not exceed; share from 0 to 1."""
        quantiles = self.quantiles
        last = len(quantiles) - 1
        if (below := int(place := share * last)) >= last:
            return quantiles[last]
        low = quantiles[below]
        return low + round((quantiles[below + 1] - low) * (place - below))


@dataclass(frozen=True, slots=True)
class Echo:
    """A part of what makes steps differ that outlasts them: a busy neighbour, a lowered clock."""

    share: int  # of the variance, in thousandths
    lasts: int  # nanoseconds, after which 1/e of it is left


@dataclass(frozen=True, slots=True)
class Rounding:
    """How many tokens an executor computes where a step has so many: it may round them up, so that
    its device meets few sizes, and none that it is slow at."""

    least: int = 1
    digits: int = 0  # leading binary ones that are kept; 0: all

    def of(self, tokens: int) -> int:
        """Tokens computed for so many: none for none."""
        if self.digits:
            step = 1 << max(0, (tokens - 1).bit_length() - self.digits)
            tokens = -(-tokens // step) * step
        return max(self.least, tokens) if tokens else 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """A device and its host, priced. All zeros: nothing is known of them.

    The price of the tokens follows the hardware. Each of `pieces` is a range of the step's token
    count, and what a token costs in it: little while the weights' bytes are the bound, more
    behind the `knee`, where the products are.

        picoseconds |          ____/      slope 2
                    |    _____/           slope 1
                    |___/
                    '---|-------|-------- tokens
    """

    device: Rates = Rates()
    pieces: tuple[tuple[int, int], ...] = ()  # (tokens from which, ps per token), ascending from 0
    host: Rates = Rates()  # inside a step: deciding it, its inputs, its sampling
    after: Rates = Rates()  # behind it: committing it, telling callers, keeping rows
    wake: int = 0  # nanoseconds more that a step takes for which the engine had slept
    turn: int = 0  # and one without prompts behind one that had some
    knee: int = 0  # tokens; a step of more is compute-bound
    rounding: Rounding = Rounding()  # of a step's tokens, before the pieces price them
    gathering: Gathering = UNPADDED  # that the features are to be counted with
    residuals: tuple[Residuals, Residuals] = (Residuals(), Residuals())  # by regime
    echoes: tuple[Echo, ...] = ()  # of the residuals of both; the rest is each step's own

    @classmethod
    def of(cls, base: int, per_token: int = 0, per_pair: int = 0) -> "StepCost":
        """Nanoseconds: the three that matter most, and no error."""
        return cls(Rates(base * 1_000, pair=per_pair * 1_000), ((0, per_token * 1_000),))

    @property
    def is_known(self) -> bool:
        return self != StepCost()

    def predict(self, features: Features) -> int:
        """Nanoseconds of a step, host and device."""
        return self.picoseconds(features) // 1_000

    def picoseconds(self, f: Features) -> int:
        """The same, before what is less than a nanosecond is left off."""
        return self.device.of(f) + self._tokens(f.tokens) + self.host.of(f)

    def on_host(self, features: Features) -> int:
        """Of them, nanoseconds in which the device waits for its host."""
        return self.host.of(features) // 1_000

    def behind(self, features: Features) -> int:
        """Nanoseconds behind a step, before the next can begin."""
        return self.after.of(features) // 1_000

    def quantile(self, features: Features, share: float) -> int:
        """Nanoseconds that this share of such steps does not exceed."""
        return self.predict(features) * self.residuals[self.regime(features)].at(share) // WHOLE

    def regime(self, features: Features) -> int:
        """MEMORY_BOUND or COMPUTE_BOUND."""
        return COMPUTE_BOUND if features.tokens > self.knee else MEMORY_BOUND

    def _tokens(self, tokens: int) -> int:
        """Picoseconds under the pieces, up to so many tokens."""
        total, tokens = 0, self.rounding.of(tokens)
        for begin, slope in reversed(self.pieces):
            if tokens > begin:
                total += slope * (tokens - begin)
                tokens = begin
        return total
