"""Formulas of step time: a power of the batch, a constant, tables of tokens a second, dollars."""

from collections.abc import Sequence
from math import log
from statistics import linear_regression

from benchmarks.textbook.part import ARITHMETIC, SIMULATED, Part, Table
from benchmarks.textbook.quoted.utilisation import decoding

EXPONENT, KNEES = 0.6, (16, 32)  # quoted
SIZES = (1, 4, 16, 64, 256)
CONTEXT = 512
BATCHES = (1, 4, 8, 32)
SAID, PRINTED = (342, 440, 522, 582), (594, 1046, 1803, 3028)  # quoted: tokens a second
DOLLARS = {2000: 0.556, 5000: 0.222, 6000: 0.185, 8000: 0.139}  # quoted: a million tokens
SHARE_OF_DAY = 0.3  # of full load, over a day


def power() -> Part:
    """How a decode step grows with the batch, beside batch^0.6."""
    figures, rows = dict[str, float](), list[list[str]]()
    alone = decoding(1, CONTEXT)
    for before, size in zip((0, *SIZES), SIZES, strict=False):
        step, law = decoding(size, CONTEXT) / alone, size**EXPONENT
        figures |= {f"step_{size}": step, f"law_{size}": law}
        local = "-"
        if before:
            slope = log(step / figures[f"step_{before}"]) / log(size / before)
            figures[f"slope_{size}"], local = slope, f"{slope:.2f}"
        rows.append([str(size), f"{step:.2f}", f"{law:.2f}", local])
    fixed, each = alone - (decoding(2, CONTEXT) - alone), decoding(2, CONTEXT) - alone
    figures["knee"] = fixed / each
    head = ["sequences that decode", "step, x one alone", "batch^0.6"]
    return Part(SIMULATED, [Table([*head, "exponent since the row above"], rows)], figures)


def implied(rates: Sequence[float]) -> tuple[list[float], float]:
    """Step times that a table of tokens a second implies, and the batch at which the fixed part of
    a step equals what its sequences add (least squares)."""
    steps = [size / rate for size, rate in zip(BATCHES, rates, strict=True)]
    each, fixed = linear_regression(BATCHES, steps)
    return steps, fixed / each


def tables() -> Part:
    """Two tables of one text: what it says, and what its code prints."""
    figures, rows = dict[str, float](), list[list[str]]()
    for key, words, rates in (("said", "said", SAID), ("printed", "its code prints", PRINTED)):
        steps, knee = implied(rates)
        figures |= {f"{key}_knee": knee, f"{key}_gain": rates[-1] / rates[0]}
        figures[f"{key}_step_32"] = steps[-1] / steps[0]
        cells = [f"{rate:,}" for rate in rates]
        rows.append([f"tokens a second, {words}", *cells])
        rows.append(["the step that this implies, ms", *(f"{step * 1e3:.1f}" for step in steps)])
    for size, said, printed in zip(BATCHES, SAID, PRINTED, strict=True):
        figures[f"ratio_{size}"] = printed / said
    alone = decoding(1, CONTEXT)
    gains = [size * alone / decoding(size, CONTEXT) for size in BATCHES]
    figures |= {f"here_{size}": gain for size, gain in zip(BATCHES, gains, strict=True)}
    rows.append(["8B model, H100 data sheet, x one alone", *(f"{gain:.2f}" for gain in gains)])
    return Part(SIMULATED, [Table(["batch", *map(str, BATCHES)], rows)], figures)


def dollars() -> Part:
    """Dollars a million tokens are dollars an hour over tokens an hour."""
    figures, rows = dict[str, float](), list[list[str]]()
    for rate, quoted in DOLLARS.items():
        hour = quoted * rate * 3_600 / 1e6
        exact = 4 / 3_600 / rate * 1e6
        figures |= {f"hour_{rate}": hour, f"exact_{rate}": exact}
        figures[f"idle_{rate}"] = exact / SHARE_OF_DAY
        cells = [f"{quoted:.3f}", f"{hour:.2f}", f"{exact:.4f}", f"{exact / SHARE_OF_DAY:.2f}"]
        rows.append([f"{rate:,}", *cells])
    head = ["tokens a second", "said, $ a million", "so an hour, $", "at $4 an hour"]
    return Part(ARITHMETIC, [Table([*head, "at 30 % of full load"], rows)], figures)
