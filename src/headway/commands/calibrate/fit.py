"""From timed steps to coefficients: none negative, in whole picoseconds, few pieces.

Least squares of the *relative* error, so that a step of one row counts as much as one of a
thousand tokens; relative to what is foretold, which makes it the mean (Wedderburn, 1974);
non-negative (Lawson and Hanson, 1974), because no work takes less than no time; and each sample's
say is bounded (Huber, 1964), because another process may have taken its core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from headway.commands.calibrate.trials import Sample
from headway.core.cost.features import Features
from headway.core.cost.step_cost import Rates, Rounding, StepCost
from headway.errors import SettingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TURNS = 8  # of weighing anew what lies far off
FAR = 4.0  # times the typical error, beyond which a sample is weighed less
SMALL = 1e-12  # error that is none
LEAST = 0.1  # of what was measured: no step is taken to be foretold less
SMALLEST = 8  # tokens of the first knot: below it, tokens cannot be told from rows
DEVICE = ("step", "row", "prompt", "read", "pair", "logit", "decode", "prefill", "head")
HOST = ("step", "token", *DEVICE[1:])
WORTH = 1.005  # times the error of all pieces: fewer may not be less exact than that
EXACT = 0.002  # error below which more pieces explain nothing
ENGINE = ("step", "row", "prompt", "token")  # what deciding and committing depend on

TERMS: dict[str, Callable[[Features], float]] = {
    "step": lambda f: 1,
    "token": lambda f: f.tokens,
    "row": lambda f: f.rows,
    "prompt": lambda f: f.prompts,
    "read": lambda f: f.reads,
    "pair": lambda f: f.pairs,
    "logit": lambda f: f.logits,
    "decode": lambda f: f.decodes,
    "prefill": lambda f: f.prompts > 0,
    "head": lambda f: f.logits > 0,
}

EXACTLY = Rounding()

Line = Sequence[float]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was measured of steps of these features."""

    features: Features
    nanoseconds: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PiecewiseFit:
    rates: Rates
    pieces: tuple[tuple[int, int], ...]  # (tokens from which, ps per token)
    error: float  # mean of the absolute relative errors, each at most 1, whatever their say
    largest: int  # tokens in one of them


def fit_steps(samples: Sequence[Sample], rounding: Rounding = EXACTLY) -> StepCost:
    """The device's time and, apart, its host's: building inputs, sampling.

    rounding: of the executor that took these steps.
    """
    device = [Observation(s.features, max(1, s.nanoseconds - s.host), s.weight) for s in samples]
    host = [
        Observation(sample.features, sample.host, sample.weight)
        for sample in samples
        if sample.host
    ]
    found = fit_device(device, rounding)
    rates = fit_rates(host, HOST) if host else Rates()
    return StepCost(found.rates, found.pieces, host=rates, knee=knee(found), rounding=rounding)


def fit_device(points: Sequence[Observation], rounding: Rounding = EXACTLY) -> PiecewiseFit:
    """The device's rates, with as few pieces as are about as exact as many."""
    knots = [0, *_powers(max(point.features.tokens for point in points))]
    best = _pieced(points, knots, rounding)
    bound = max(EXACT, WORTH * best.error)
    while len(knots) > 1:
        fewer = [[each for each in knots if each != knot] for knot in knots[1:]]
        fits = [_pieced(points, each, rounding) for each in fewer]
        tried = min(fits, key=lambda fit: fit.error)
        if tried.error > bound:
            break
        best, knots = tried, [begin for begin, _ in tried.pieces]
    return best


def fit_rates(points: Sequence[Observation], names: Sequence[str]) -> Rates:
    """Of the host: no pieces."""
    rows = [[TERMS[name](point.features) for name in names] for point in points]
    targets = [point.nanoseconds * 1_000 for point in points]
    solved = solve(rows, targets, [point.weight for point in points])
    return Rates(**{name: round(each) for name, each in zip(names, solved, strict=True)})


def knee(fit_steps: PiecewiseFit) -> int:
    """Tokens from which on a further one costs more than half of what one costs on average.

    Where the first one does, the step has no flat part: then the tokens whose time equals what
    the step and its output layer take without any. More than those, and they decide how long it
    takes.
    """
    begins = [begin for begin, _ in fit_steps.pieces]
    amounts = segments(fit_steps.largest, begins)
    slopes = [slope for _, slope in fit_steps.pieces]
    mean = sum(map(int.__mul__, amounts, slopes)) / fit_steps.largest
    at = next((begin for begin, slope in fit_steps.pieces if 2 * slope > mean), 0)
    return at or (fit_steps.rates.step + fit_steps.rates.head) // max(1, slopes[0])


def solve(rows: Sequence[Line], targets: Sequence[float], given: Sequence[float]) -> list[float]:
    """Non-negative x with rows @ x near the targets, as a share of what is foretold, and robustly.
    given: the weight of each row.

    A share of the measured ones would lie below their mean, the lower the more they spread; and
    small steps spread more than large ones.
    """
    import numpy as np

    known, took = np.array(rows, dtype=float), np.array(targets, dtype=float)
    scale = known.max(axis=0)
    scale[scale == 0] = 1.0
    known /= scale
    own = np.sqrt(np.array(given))
    predicted, weights = took, own
    for _ in range(TURNS):
        shares = weights / predicted
        found = nonnegative(known * shares[:, None], took * shares)
        predicted = np.maximum(known @ found, LEAST * took)
        errors = np.abs(took / predicted - 1)
        typical = FAR * 1.4826 * np.median(errors) or inf
        weights = own * np.sqrt(np.minimum(1.0, typical / np.maximum(errors, SMALL)))
    solved: list[float] = (found / scale).tolist()
    return solved


def nonnegative(rows: "ArrayLike", targets: "ArrayLike") -> list[float]:
    """Least squares."""
    try:
        from scipy.optimize import nnls
    except ModuleNotFoundError as error:
        raise SettingError(
            f"fitting needs {error.name}: pip install 'headway[calibrate]'"
        ) from error
    solved: list[float] = nnls(rows, targets)[0].tolist()
    return solved


def segments(tokens: int, knots: Sequence[int]) -> list[int]:
    """How many of the tokens lie between each knot and the next."""
    ends = [*knots[1:], max(tokens, knots[-1])]
    return [max(0, min(tokens, end) - begin) for begin, end in zip(knots, ends, strict=True)]


def _pieced(
    points: Sequence[Observation], knots: Sequence[int], rounding: Rounding
) -> PiecewiseFit:
    computed = [rounding.of(point.features.tokens) for point in points]
    rows = [
        [*(TERMS[name](point.features) for name in DEVICE), *segments(tokens, knots)]
        for point, tokens in zip(points, computed, strict=True)
    ]
    targets = [point.nanoseconds * 1_000 for point in points]
    solved = solve(rows, targets, [point.weight for point in points])
    whole = [round(each) for each in solved]
    said = [sum(value * each for value, each in zip(row, whole, strict=True)) for row in rows]
    errors = [
        min(1.0, abs(target / max(each, LEAST * target) - 1))  # one step is not to decide the knots
        for target, each in zip(targets, said, strict=True)
    ]
    count = len(DEVICE)
    return PiecewiseFit(
        rates=Rates(**dict(zip(DEVICE, whole[:count], strict=True))),
        pieces=tuple(zip(knots, whole[count:], strict=True)),
        error=sum(errors) / len(errors),
        largest=max(computed),
    )


def _powers(most: int) -> list[int]:
    powers, power = list[int](), SMALLEST
    while power < most:
        powers.append(power)
        power *= 2
    return powers
