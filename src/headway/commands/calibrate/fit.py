"""The fit of a cost model: from timed steps to non-negative coefficients in whole picoseconds.

The fit minimises the squared *relative* error, so that a step of one row counts as much as one of
a thousand tokens. Errors are relative to the prediction, so that predictions are means (Wedderburn,
1974). Coefficients are non-negative (Lawson and Hanson, 1974), because no work takes negative time.
Outliers have bounded influence (Huber, 1964), because another process may have taken the core.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from headway.commands.calibrate.trials import Sample
from headway.core.cost.features import Features
from headway.core.cost.step_cost import Rates, Rounding, StepCost
from headway.errors import SettingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TURNS = 8  # rounds of reweighting
FAR = 4.0  # times the typical error; samples with larger errors weigh less
SMALL = 1e-12  # an error that counts as 0
LEAST = 0.1  # of the measured time; predictions and remainders below it count as this share
SMALLEST = 8  # tokens at the first knot: below it, tokens and rows are hard to tell apart
DEVICE = ("step", "row", "prompt", "read", "pair", "logit", "decode", "prefill", "head")
HOST = ("step", "token", *DEVICE[1:])
WORTH = 1.005  # fewer pieces may have at most this many times the error of all pieces
EXACT = 0.002  # a relative error at which no more pieces are needed
ENGINE = ("step", "row", "prompt", "token")  # the terms of deciding and committing

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
    """The measured time of a step with these features."""

    features: Features
    nanoseconds: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PiecewiseFit:
    """The device's rates, with a price per token that depends on the number of tokens."""

    rates: Rates
    pieces: tuple[tuple[int, int], ...]  # (from this many tokens on, ps per token)
    error: float  # mean absolute relative error, unweighted, each at most 1
    largest: int  # tokens of the largest step
    tile: int = 0  # ps


def fit_steps(
    samples: Sequence[Sample], rounding: Rounding = EXACTLY, tile: int | None = None
) -> StepCost:
    """Fit the device's rates and, separately, the host's (building inputs, sampling).

    rounding: how the executor of these samples rounds a step's tokens up. tile: picoseconds of one
    tile; None: fit this too. Raises SettingError if scipy is missing.
    """
    known = StepCost(tile=tile or 0, rounding=rounding)
    device = [  # without the floor, a step no slower than its tiles would outweigh all others
        Observation(
            s.features,
            max(LEAST * s.nanoseconds, s.nanoseconds - s.host - known.predict(s.features)),
            s.weight,
        )
        for s in samples
    ]
    host = [
        Observation(sample.features, sample.host, sample.weight)
        for sample in samples
        if sample.host
    ]
    fit = fit_device(device, rounding if tile is None else replace(rounding, tile=1))
    tile = fit.tile if tile is None else tile
    rates = fit_rates(host, HOST) if host else Rates()
    return StepCost(
        fit.rates,
        fit.pieces,
        tile,
        host=rates,
        knee=knee(fit, tile // rounding.tile),
        rounding=rounding,
    )


def fit_device(points: Sequence[Observation], rounding: Rounding = EXACTLY) -> PiecewiseFit:
    """The device's rates, with the fewest pieces that are about as accurate as all pieces.

    Raises SettingError if scipy is missing.
    """
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
    """The rates of the named terms, without pieces, for times of the host.

    Raises SettingError if scipy is missing.
    """
    rows = [[TERMS[name](point.features) for name in names] for point in points]
    targets = [point.nanoseconds * 1_000 for point in points]
    solved = solve(rows, targets, [point.weight for point in points])
    return Rates(**{name: round(each) for name, each in zip(names, solved, strict=True)})


def knee(fit: PiecewiseFit, more: int = 0) -> int:
    """The number of tokens above which a step counts as compute-bound. more: ps per token beside
    the pieces (its share of a tile).

    From the knee on, one more token costs more than half of the average price per token. If the
    first token already does, the fit has no flat part. Its knee is then the number of tokens whose
    time equals the fixed time of the step and its output layer.
    """
    begins = [begin for begin, _ in fit.pieces]
    amounts = segments(fit.largest, begins)
    slopes = [slope + more for _, slope in fit.pieces]
    mean = sum(map(int.__mul__, amounts, slopes)) / fit.largest
    known = zip(begins, slopes, strict=True)
    at = next((begin for begin, slope in known if 2 * slope > mean), 0)
    return at or (fit.rates.step + fit.rates.head) // max(1, slopes[0])


def solve(rows: Sequence[Line], targets: Sequence[float], given: Sequence[float]) -> list[float]:
    """Non-negative x that brings rows @ x near the targets: a robust fit of relative errors.

    given: the weight of each row. Errors are relative to the prediction. Relative to the measured
    times, predictions would lie below the mean, the more so the wider the times spread, and small
    steps spread most. Raises SettingError if scipy is missing.
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
        coefficients = nonnegative(known * shares[:, None], took * shares)
        predicted = np.maximum(known @ coefficients, LEAST * took)
        errors = np.abs(took / predicted - 1)
        typical = FAR * 1.4826 * np.median(errors) or inf
        weights = own * np.sqrt(np.minimum(1.0, typical / np.maximum(errors, SMALL)))
    solved: list[float] = (coefficients / scale).tolist()
    return solved


def nonnegative(rows: "ArrayLike", targets: "ArrayLike") -> list[float]:
    """The non-negative x of least squared error. Raises SettingError if scipy is missing."""
    try:
        from scipy.optimize import nnls
    except ModuleNotFoundError as error:
        raise SettingError(
            f"fitting needs {error.name}: pip install 'headway[calibrate]'"
        ) from error
    solved: list[float] = nnls(rows, targets)[0].tolist()
    return solved


def segments(tokens: int, knots: Sequence[int]) -> list[int]:
    """The number of tokens between each knot and the next, and after the last knot the rest."""
    ends = [*knots[1:], max(tokens, knots[-1])]
    return [max(0, min(tokens, end) - begin) for begin, end in zip(knots, ends, strict=True)]


def _pieced(
    points: Sequence[Observation], knots: Sequence[int], rounding: Rounding
) -> PiecewiseFit:
    computed = [rounding.of(point.features.tokens) for point in points]
    tiled = [-(-tokens // rounding.tile) if rounding.tile > 1 else 0 for tokens in computed]
    rows = [
        [*(TERMS[name](point.features) for name in DEVICE), tiles, *segments(tokens, knots)]
        for point, tokens, tiles in zip(points, computed, tiled, strict=True)
    ]
    targets = [point.nanoseconds * 1_000 for point in points]
    solved = solve(rows, targets, [point.weight for point in points])
    whole = [round(each) for each in solved]
    predicted = [sum(value * each for value, each in zip(row, whole, strict=True)) for row in rows]
    errors = [
        min(1.0, abs(target / max(each, LEAST * target) - 1))  # no single step may decide the knots
        for target, each in zip(targets, predicted, strict=True)
    ]
    count = len(DEVICE)
    return PiecewiseFit(
        rates=Rates(**dict(zip(DEVICE, whole[:count], strict=True))),
        pieces=tuple(zip(knots, whole[count + 1 :], strict=True)),
        tile=whole[count],
        error=sum(errors) / len(errors),
        largest=max(computed),
    )


def _powers(most: int) -> list[int]:
    powers, power = list[int](), SMALLEST
    while power < most:
        powers.append(power)
        power *= 2
    return powers
