"""What speculative decoding can win, computed from acceptance rates. Nothing is run here.

Each of k guesses is accepted with the same probability a, independently (Leviathan et al., 2023):
a verifying step yields (1 - a^(k + 1)) / (1 - a) tokens.
"""

from benchmarks.textbook.part import ARITHMETIC, Part, Table
from benchmarks.textbook.quoted.utilisation import decoding
from benchmarks.textbook.runs import COST
from headway.core.cost.features import NONE, row_features

RATES, BATCHES, MOST, CONTEXT = (0.5, 0.6, 0.7, 0.8, 0.9), (1, 8, 32, 64, 128, 256), 8, 512
DRAFT = 0.1  # time of a guess, of a step in which one sequence decodes


def expected(rate: float, guesses: int) -> float:
    """Tokens of a verifying step."""
    return (1 - rate ** (guesses + 1)) / (1 - rate)


def verifying(batch: int, guesses: int) -> int:
    """Nanoseconds of a step in which `batch` sequences each have `guesses` guesses checked."""
    row, step = row_features(CONTEXT, guesses + 1, logits=guesses + 1), NONE
    for _ in range(batch):
        step += row
    return COST.predict(step)


def gain(rate: float, batch: int, guesses: int) -> float:
    """Tokens a second, times those without guesses."""
    plain = decoding(batch, CONTEXT)
    drafting = guesses * DRAFT * plain
    return expected(rate, guesses) * plain / (verifying(batch, guesses) + drafting)


def best(rate: float, batch: int) -> tuple[float, int]:
    """The largest gain, and with how many guesses; of equal ones, the fewest."""
    gains = [(gain(rate, batch, guesses), -guesses) for guesses in range(1, MOST + 1)]
    found = max([(1.0, 0), *gains])
    return found[0], -found[1]


def speculation() -> Part:
    figures, rows = dict[str, float](), list[list[str]]()
    for rate in RATES:
        cells = [f"{rate:.1f}", f"{expected(rate, 4):.2f}"]
        for batch in BATCHES:
            won, guesses = best(rate, batch)
            key = f"at_{round(rate * 10)}_{batch}"
            figures |= {key: won, f"{key}_guesses": guesses}
            cells.append(f"{won:.2f} ({guesses})")
        figures[f"tokens_{round(rate * 10)}"] = expected(rate, 4)
        rows.append(cells)
    head = ["accepted", "tokens a step, 4 guesses", *(f"batch {batch}" for batch in BATCHES)]
    return Part(ARITHMETIC, [Table(head, rows)], figures)
