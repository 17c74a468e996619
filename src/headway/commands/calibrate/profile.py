"""`headway calibrate --profile`: what bounds a step, and how throughput grows with the batch.

Each step is compared with the ceilings of this machine, which are measured here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.commands.calibrate.design import Design
from headway.commands.calibrate.trials import Sample, Trials
from headway.core.cost.features import Features
from headway.costing.calibration import Calibration, write_cost_file
from headway.costing.datasheet import ModelWork, model_work
from headway.report.terminal_tables import print_notes
from headway.runs.testbed import Testbed

if TYPE_CHECKING:
    from headway.executor.torch.load import LoadedModel

PICTURE = ".png"  # the ending of the curve's file, which lies beside the cost file
PROMPTS = (64, 256, 512)  # tokens of the prompts that are profiled alone
SAMPLES = 5  # of each size; the median counts
NEITHER = 0.25  # share of a ceiling; a step below it on both is bound by neither
TOP = 3  # operators named for each step
BEYOND = 4  # times the slots: the largest batch tried for the knee
GAIN = 2**0.5  # times the step's time; doubling a batch pays if it takes less


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The measured limits of this machine, with the calibration's threads."""

    read: float  # bytes per second
    products: float  # FLOP per second in the model's dtype


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """A step's time, and how close it comes to the ceilings."""

    name: str
    rows: int
    prompt: bool
    nanoseconds: int
    read: float  # bytes per second, of weights, keys and values
    products: float  # FLOP per second
    bound: str  # memory, compute, or neither
    operators: dict[str, float]  # share of the time by name, for the TOP slowest

    @property
    def tokens_per_second(self) -> float:
        return self.rows * 1e9 / self.nanoseconds


def run_profile(
    loaded: "LoadedModel", testbed: Testbed, calibration: Calibration, out: Path, console: Console
) -> None:
    """Print tables, draw a plot beside the cost file and add the figures to the file.

    loaded: the model. testbed: the model on this machine. out: the cost file.
    """
    from headway.executor.torch.device_peaks import matmul_speed, memory_bandwidth

    now = testbed.clock.now
    console.print(
        Text("Measuring the machine's ceilings, and profiling steps with torch.profiler ...")
    )
    ceilings = Ceilings(
        memory_bandwidth(testbed.device, now), matmul_speed(testbed.dtype, testbed.device, now)
    )
    work = replace(model_work(loaded.config), weights=loaded.plan.weights, kv=calibration.kv_bytes)
    steps = profile_steps(Trials(testbed, 0), designs(calibration), work, ceilings)
    sizes = [step for step in steps if not step.prompt]
    chosen = knee(sizes)
    reached = chosen is not sizes[-1]
    picture = out.with_suffix(PICTURE)
    draw(sizes, chosen if reached else None, calibration, picture)
    console.print(steps_table(steps, ceilings))
    console.print(operators_table(steps))
    print_notes(console, notes(ceilings, chosen, reached, calibration, picture))
    profile = {
        "ceilings": asdict(ceilings),
        "knee_rows": chosen.rows if reached else 0,  # 0: beyond the sizes that were tried
        "steps": [asdict(step) for step in steps],
    }
    write_cost_file(replace(calibration, about={**calibration.about, "profile": profile}), out)


def notes(
    ceilings: Ceilings, chosen: ProfiledStep, reached: bool, calibration: Calibration, picture: Path
) -> tuple[str, str]:
    """Two notes below the tables: on the ceilings and on the knee. reached: the knee was found."""
    read, products = f"{ceilings.read / 1e9:.1f} GB/s", f"{ceilings.products / 1e9:,.0f} GFLOP/s"
    rule = "to which doubling the batch raised throughput by more than the step's time"
    at = f"{chosen.rows} rows, the last size {rule}"
    if not reached:
        at = f"beyond {chosen.rows} rows; it is the last size {rule}"
    return (
        f"Ceilings of this machine (threads: {calibration.threads}): {read} read, {products} in "
        f"{calibration.dtype}. Bound: the ceiling that a step comes nearer to; neither: it "
        f"stays below {NEITHER:.0%} of both, and launching operators, copying and Python take the "
        "time. Weights that fit into a cache can be read faster than memory.",
        f"Knee of the throughput-latency curve: {at}. The curve is in {picture}.",
    )


def designs(calibration: Calibration) -> list[Design]:
    """The steps to profile: 1, 2, 4 and so on decoding rows, then prompts alone."""
    context = calibration.context // 8
    fit = calibration.num_blocks // (context // calibration.block_size + 1)
    most = min(BEYOND * calibration.slots, fit)
    sizes = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    prompts = [length for length in PROMPTS if length < calibration.context]
    return [
        *(Design((context,) * size) for size in sizes),
        *(Design(prompts=((0, length),)) for length in prompts),
    ]


def profile_steps(
    trials: Trials, batches: Sequence[Design], work: ModelWork, ceilings: Ceilings
) -> list[ProfiledStep]:
    """A profiled step per design, the median of SAMPLES.

    The designs are timed in turn, so that a slow second of the machine affects all sizes alike.
    """
    rounds = [[trials.sample(design) for design in batches] for _ in range(SAMPLES)]
    return [
        _profiled_step(
            trials, design, sorted(samples, key=lambda each: each.nanoseconds), work, ceilings
        )
        for design, samples in zip(batches, zip(*rounds, strict=True), strict=True)
    ]


def _profiled_step(
    trials: Trials, design: Design, samples: list[Sample], work: ModelWork, ceilings: Ceilings
) -> ProfiledStep:
    """Profile one design. samples: ascending by time; the middle one counts."""
    from headway.executor.torch.device_peaks import operator_shares

    middle = samples[len(samples) // 2]
    per_second = 1e9 / middle.nanoseconds
    read = bytes_of(work, middle.features) * per_second
    products = flops_of(work, middle.features) * per_second
    shares = operator_shares(lambda: trials.sample(design), trials.testbed.device)
    rows, prompt = len(design.decodes), bool(design.prompts)
    return ProfiledStep(
        name=f"prompt of {design.tokens}" if prompt else f"{rows} next tokens",
        rows=rows,
        prompt=prompt,
        nanoseconds=middle.nanoseconds,
        read=read,
        products=products,
        bound=bound(read / ceilings.read, products / ceilings.products),
        operators={name: shares[name] for name in list(shares)[:TOP]},
    )


def bytes_of(work: ModelWork, features: Features) -> int:
    """Bytes that a step must read: all weights once, and its rows' keys and values."""
    return work.weights + work.kv * features.reads


def flops_of(work: ModelWork, features: Features) -> int:
    """FLOP that a step must compute."""
    return work.flops * features.tokens + work.pair * features.pairs + work.head * features.logits


def bound(read: float, products: float) -> str:
    """`memory`, `compute` or `neither`; read, products: the shares of the ceilings reached."""
    if max(read, products) < NEITHER:
        return "neither"
    return "memory" if read > products else "compute"


def knee(steps: Sequence[ProfiledStep]) -> ProfiledStep:
    """The last step that took less than GAIN times as long as the step of half its size.

    steps: each with twice the rows of the one before. If no step did, the first one.
    """
    pays = [
        doubled
        for step, doubled in pairwise(steps)
        if doubled.nanoseconds < GAIN * step.nanoseconds
    ]
    return pays[-1] if pays else steps[0]


def steps_table(steps: Sequence[ProfiledStep], ceilings: Ceilings) -> Table:
    """A row per step: its time, its throughput, its share of both ceilings, and what bounds it."""
    table = Table(title="What bounds a step", title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("step", no_wrap=True)
    for column in ("ms", "tokens/s", "GB/s", "of it", "GFLOP/s", "of it"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(" bound", no_wrap=True)
    for step in steps:
        table.add_row(
            step.name,
            f"{step.nanoseconds / 1e6:.2f}",
            "" if step.prompt else f"{step.tokens_per_second:,.0f}",
            f"{step.read / 1e9:.1f}",
            f"{step.read / ceilings.read:.0%}",
            f"{step.products / 1e9:,.0f}",
            f"{step.products / ceilings.products:.0%}",
            f" {step.bound}",
        )
    return table


def operators_table(steps: Sequence[ProfiledStep]) -> Table:
    """A row per step: the operators of torch that take most of its time."""
    table = Table(
        title="Operators that take most of the time", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("step", no_wrap=True)
    table.add_column("operator, share of the time")
    for step in steps:
        shares = (f"{short(name)} {each:.0%}" for name, each in step.operators.items())
        table.add_row(step.name, ", ".join(shares))
    return table


def short(operator: str) -> str:
    """An operator's name without torch's namespaces."""
    return operator.rpartition("::")[2].lstrip("_").removesuffix("_for_cpu")


def draw(
    steps: Sequence[ProfiledStep], chosen: ProfiledStep | None, calibration: Calibration, path: Path
) -> None:
    """Save a plot of throughput against step time. chosen: the knee; None: none was found."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    times = [step.nanoseconds / 1e6 for step in steps]
    axes.plot(times, [step.tokens_per_second for step in steps], marker="o", color="#2a6f97")
    for time, step in zip(times, steps, strict=True):
        axes.annotate(
            str(step.rows),
            (time, step.tokens_per_second),
            textcoords="offset points",
            xytext=(6, -12),
        )
    if chosen is not None:
        at, label = chosen.nanoseconds / 1e6, f"knee: {chosen.rows} rows"
        axes.axvline(at, color="#bc4749", linestyle="--", label=label)
    axes.set(xlabel="one step, milliseconds (time between a row's tokens)", ylabel="tokens / s")
    axes.set(
        xlim=(0, 1.08 * max(times)),
        ylim=(0, None),
        title=f"{calibration.model}, {calibration.dtype}, by rows",
    )
    axes.grid(alpha=0.3)
    if chosen is not None:
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
