"""How much is offered, said before it is: requests, how fast they come, and what they can say."""

from collections.abc import Mapping

from headway.errors import SettingError
from headway.figures.capacity_interval import ENOUGH, seconds_for_enough
from headway.report.run_description import cut_said
from headway.runs.experiment import Setting
from headway.runs.testbed import Rig


def first_line(setting: Setting) -> str:
    work = setting.work
    return (
        f"{work.rate:.3g} requests / s: {len(work.requests):,} requests in "
        f"{work.window / 1e9:.3g} s, load {work.load:.2f} (device-seconds per second at full "
        "batches, by the price of a token here)."
    )


def room(rig: Rig) -> str:
    """For how many requests at once."""
    blocks = f"{rig.num_blocks:,} of the {max(rig.fit, rig.num_blocks):,} KV blocks that fit"
    return f"{rig.slots} slots, {blocks} ({rig.block_size} tokens each)"


def remarks(setting: Setting) -> list[str]:
    """What somebody should know before minutes are spent: what is cut, and what is too little."""
    said = []
    if shorter := cut_said(setting.about["cut_to_context"]):
        said.append(f"Of these, {shorter}.")
    if setting.work.trace_ends:
        said.append("All of a trace is offered: more --seconds add nothing to it.")
    return said


def refuse_nobody(setting: Setting) -> None:
    """SettingError: a report of nobody would be all zeros."""
    if not any(setting.counted().values()):
        raise SettingError(
            f"all {len(setting.work.requests)} requests arrive in the warm-up, which is not "
            "counted: take more --seconds"
        )


def too_few(setting: Setting) -> str:
    """Which percentiles will not be said, and what would help; empty: p95 will be."""
    counts, paced = setting.counted(), setting.counted(2)
    asked = {each.name for each in setting.endpoints if counts[each.name]}
    few = {name: counts[name] for name in asked if counts[name] < ENOUGH}
    slow = {f"TPOT of {name}": paced[name] for name in asked - few.keys() if paced[name] < ENOUGH}
    if not few and not slow:
        return ""
    said = (
        f"Too few requests for p95, which needs {ENOUGH} after the warm-up: {_listed(few | slow)}."
    )
    if setting.work.trace_ends:
        return f"{said} A longer trace would have them."
    seconds = setting.about["asked"]["span_ns"] / 1e9
    least = min((each for each in [*few.values(), *slow.values()] if each), default=1)
    more = seconds_for_enough(seconds, least)
    return f"{said} --seconds {more} would have about {ENOUGH}."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
