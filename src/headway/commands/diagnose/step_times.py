"""How long each step should have taken (StepTimes): by a cost model, or by a fit to the run.

A fit describes the machine as it was for most of the run. So it shows slow moments, but not a
machine that was slow from beginning to end: that takes an earlier cost model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.commands.diagnose.evidence import Evidence
from headway.core.cost.features import Features
from headway.core.cost.step_cost import Rates, StepCost
from headway.core.ledger import StepRow

SAMPLE = 3_000  # steps that a fit uses, evenly spread
ROUNDS = 6  # of the fit: each leaves out the steps that the one before found slow
SLOW = 1.15  # measured over fitted time at which the next round leaves a step out
LEAST = 40  # steps that a fit needs
BLOCK = 16  # tokens of a KV block, as assumed for step rows


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Expected nanoseconds of each step, and the parts of them that a rule can subtract."""

    cost: StepCost  # given or fitted
    is_fitted: bool
    expected: tuple[int, ...]
    prompt: tuple[int, ...]  # for prompt tokens
    crowd: tuple[int, ...]  # for all decode rows beyond the first

    def of_tokens(self, tokens: int) -> int:
        """Nanoseconds that this many prompt tokens add to a step."""
        alone = self.cost.predict(_prompt_step(tokens))
        return max(0, alone - self.cost.predict(Features()))

    def alone(self, prompt: int) -> int:
        """Nanoseconds to the first token of a prompt (tokens) that nothing else delays."""
        return self.cost.predict(_prompt_step(prompt))

    def next_token(self, context: int) -> int:
        """Nanoseconds of a step with one decode row of this context (tokens)."""
        return self.cost.predict(Features(1, 1, 0, context, context, 1, 1))

    def rows_within(self, limit: int, context: int, most: int) -> int:
        """How many decode rows of this context fit into a step of `limit` nanoseconds, from 1 to
        `most`; found in steps of a tenth."""
        rows = most
        while rows > 1 and self.cost.predict(_decodes(rows, context)) > limit:
            rows = rows * 9 // 10
        return max(1, rows)

    def work(self, prompt: int, generated: int, slots: int) -> int:
        """Device-nanoseconds of a request's share of full batches."""
        rows = max(1, slots)
        full = _decodes(rows, prompt + generated / 2)
        return self.of_tokens(prompt) + generated * self.cost.predict(full) // rows


def _prompt_step(tokens: int) -> Features:
    if not tokens:
        return Features()
    return Features(tokens, 1, 1, tokens, tokens * (tokens + 1) // 2, 1)


def step_times(evidence: Evidence) -> StepTimes | None:
    """Compute the expected times of the steps; None if there are too few of them.

    Without any steps, a known cost model still prices requests.
    """
    steps = evidence.steps
    if not steps and evidence.cost.is_known:
        return StepTimes(evidence.cost, False, (), (), ())
    if len(steps) < LEAST:
        return None
    features = evidence.features or _from_rows(steps, evidence.num_blocks)
    # The cost model prices exact features. Features estimated from rows need a fit of their own.
    is_fitted = not (evidence.cost.is_known and evidence.features)
    cost = _fitted(features, steps) if is_fitted else evidence.cost
    expected, prompt, crowd = list[int](), list[int](), list[int]()
    reads_each = 0.0  # keys that a decode row reads, from the latest step without prompts
    for row, each in zip(steps, features, strict=True):
        decodes = row.decodes if row.tokens != row.rows else row.rows
        if not each.prompts:
            reads_each = each.reads / max(1, each.rows)
        whole, plain = cost.predict(each), _decodes(decodes, reads_each)
        without_prompts = cost.predict(plain) if each.prompts else whole
        single = _decodes(1, reads_each)
        expected.append(whole)
        prompt.append(max(0, whole - without_prompts))
        crowd.append(max(0, without_prompts - cost.predict(single)) if decodes > 1 else 0)
    return StepTimes(cost, is_fitted, tuple(expected), tuple(prompt), tuple(crowd))


def _decodes(rows: int, reads_each: float) -> Features:
    reads = round(rows * reads_each)
    return Features(rows, rows, 0, reads, reads, rows, int(rows > 0))


def _from_rows(steps: Sequence[StepRow], num_blocks: int) -> tuple[Features, ...]:
    """Estimate the features from step rows; the keys read are those of the blocks in use."""
    most = num_blocks or max(row.free_blocks for row in steps)
    made = []
    for row in steps:
        prompts, computed = row.rows - row.decodes, row.tokens + row.waste_tokens
        reads = max(0, most - row.free_blocks) * BLOCK
        length = (row.tokens - row.decodes) // max(1, prompts)
        pairs = reads + prompts * length * length // 2
        made.append(
            Features(
                computed, row.rows + row.held, prompts, reads, pairs, row.rows, row.decodes > 0
            )
        )
    return tuple(made)


# -- the fit


def _columns(f: Features) -> list[float]:
    """The columns of the fit: 1 for the step, its tokens, rows, keys read, and pairs."""
    return [1.0, f.tokens, f.rows, f.reads, f.pairs]


def _fitted(features: Sequence[Features], steps: Sequence[StepRow]) -> StepCost:
    """Least squares of the relative error, in rounds; each leaves out the slow steps."""
    every = -(-len(steps) // SAMPLE)
    sample = [
        (_columns(f), float(row.nanoseconds))
        for f, row in zip(features[::every], steps[::every], strict=True)
        if row.nanoseconds > 0
    ]
    kept, rates, middle = sample, [0.0] * 5, 1.0
    for _ in range(ROUNDS):
        rates = _least_squares(kept)
        ratios = [_ratio(columns, took, rates) for columns, took in sample]
        middle = sorted(ratios)[len(ratios) // 3]  # at least a third of the steps is not slow
        kept = [pair for pair, ratio in zip(sample, ratios, strict=True) if ratio < SLOW * middle]
    step, token, row_, read, pair = [round(1_000 * middle * rate) for rate in rates]
    return StepCost(Rates(step=step, token=token, row=row_, read=read, pair=pair))


def _ratio(columns: Sequence[float], took: float, rates: Sequence[float]) -> float:
    return took / max(1.0, sum(a * b for a, b in zip(columns, rates, strict=True)))


def _least_squares(sample: Sequence[tuple[list[float], float]]) -> list[float]:
    """Fit rates that are not negative: the column with the most negative rate is dropped, and the
    rest fitted again."""
    used = list(range(5))
    while used:
        found = _solved([([x[at] / took for at in used]) for x, took in sample])
        if min(found) >= 0:
            rates = [0.0] * 5
            for at, rate in zip(used, found, strict=True):
                rates[at] = rate
            return rates
        del used[found.index(min(found))]
    return [0.0] * 5


def _solved(rows: Sequence[list[float]]) -> list[float]:
    """The x of min |A x - 1|, by the normal equations, with the columns scaled to one size."""
    count = len(rows[0])
    scales = [max(abs(row[at]) for row in rows) or 1.0 for at in range(count)]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    matrix = [
        [sum(row[i] * row[j] for row in scaled) + (1e-9 if i == j else 0.0) for j in range(count)]
        + [sum(row[i] for row in scaled)]
        for i in range(count)
    ]
    for i in range(count):
        pivot = max(range(i, count), key=lambda at: abs(matrix[at][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for j in range(count):
            if j != i:
                factor = matrix[j][i] / matrix[i][i]
                matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
    return [matrix[i][count] / matrix[i][i] / scales[i] for i in range(count)]
