"""What is printed before a run: the requests, their rate, and the percentiles they allow."""

from collections.abc import Mapping

from headway.errors import SettingError
from headway.figures.capacity_interval import ENOUGH_REQUESTS, seconds_for_enough
from headway.report.formatting import figures, per_second
from headway.report.run_description import cut_text
from headway.runs.experiment import Experiment
from headway.runs.testbed import Testbed


def first_line(experiment: Experiment) -> str:
    """The request rate, the number of requests, the window and the load, in one sentence."""
    work = experiment.work
    return (
        f"{figures(work.rate)} requests / s: {len(work.requests):,} requests in "
        f"{figures(work.window / 1e9)} s, load {per_second(work.load)} (device-seconds per second "
        "at full batches, by the price of a token here)."
    )


def room(testbed: Testbed) -> str:
    """The slots and KV blocks that the testbed has."""
    blocks = (
        f"{testbed.num_blocks:,} of the {max(testbed.fit, testbed.num_blocks):,} KV blocks that fit"
    )
    return f"{testbed.slots} slots, {blocks} ({testbed.block_size} tokens each)"


def remarks(experiment: Experiment) -> list[str]:
    """Warnings before the run: requests cut to the context, and traces that end early."""
    lines = []
    if shorter := cut_text(experiment.about["cut_to_context"]):
        lines.append(f"Of these, {shorter}.")
    if experiment.work.trace_ends:
        lines.append("All of a trace is offered: more --seconds add nothing to it.")
    return lines


def refuse_nobody(experiment: Experiment) -> None:
    """Raise SettingError if no request counts: the report would be all zeros."""
    if not any(experiment.counted().values()):
        raise SettingError(
            f"all {len(experiment.work.requests)} requests arrive in the warm-up, which is not "
            "counted: take more --seconds"
        )


def too_few(experiment: Experiment) -> str:
    """Which percentiles will be missing, and what would help; empty: p95 can be given."""
    counts, paced = experiment.counted(), experiment.counted(2)
    with_requests = {each.name for each in experiment.endpoints if counts[each.name]}
    few = {name: counts[name] for name in with_requests if counts[name] < ENOUGH_REQUESTS}
    unpaced = sorted(name for name in with_requests - few.keys() if not paced[name])
    few |= {
        f"TPOT of {name}": paced[name]
        for name in with_requests - few.keys() - set(unpaced)
        if paced[name] < ENOUGH_REQUESTS
    }
    lines = []
    if few:
        lines.append(
            f"Too few requests for p95, which needs {ENOUGH_REQUESTS} after the warm-up: "
            f"{_listed(few)}. {_remedy(experiment, min(few.values()))}"
        )
    if unpaced:  # more requests would not help
        lines.append(f"No answer of {', '.join(unpaced)} has two tokens, so there is no TPOT.")
    return " ".join(lines)


def _remedy(experiment: Experiment, least: int) -> str:
    """What would bring enough requests. least: the smallest count so far."""
    if experiment.work.trace_ends:
        return "A longer trace would have them."
    seconds = seconds_for_enough(experiment.about["asked"]["span_ns"] / 1e9, least)
    return f"--seconds {seconds} would have about {ENOUGH_REQUESTS}."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
