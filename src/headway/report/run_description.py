"""What was run, as report.html states it: model, machine or cost model, traffic, time."""

from collections.abc import Mapping
from typing import Any

from headway.report.analysis import Analysis
from headway.report.formatting import figures, per_second, share, threads
from headway.runs import provenance
from headway.strategies.strategy import SLOTS

BEYOND = "Beyond the model"
ENFORCED = (
    "a request that has not started within its endpoint's queue limit, or not ended within its "
    "e2e limit, is dropped; one that would probably wait too long is refused, and one that "
    "a later request supersedes is ended. All count as outside the budget"
)


def stated(found: Analysis) -> list[tuple[str, str]]:
    """What the report states about its runs: (title, sentence) for model, memory and so on."""
    about = found.report.about
    model, work = about["model"], about["workload"]
    window, warm_up = work["window_ns"] / 1e9, work["warm_up_ns"] / 1e9
    lines = [
        (
            "Model",
            f"{model['name']}, {model['dtype']} on {model['device']}, {threads(model['threads'])}",
        ),
        (
            "Memory",
            f"{model['num_blocks']:,} KV blocks of {model['block_size']} tokens; "
            f"{model.get('slots', SLOTS)} slots; context {model['context']:,} tokens",
        ),
        *_machine(found),
        ("Seed", str(about["seed"])),
        (
            "Time",
            f"{figures(window, 4)} s of arrivals for each strategy, drained for at most "
            f"{figures(work['drain_ns'] / 1e9, 4)} s; arrivals of the first "
            f"{figures(warm_up, 4)} s are warm-up and excluded, a starting backlog counts",
        ),
        (
            "Offered load",
            f"{_rate(work)}; {per_second(work['offered_load'])} device-seconds per second "
            f"at full batches ({work['price_ns']['prompt'] / 1e6:.3f} ms a prompt token, "
            f"{work['price_ns']['answer'] / 1e6:.3f} ms an answered one)",
        ),
        ("Traffic", traffic_text(work)),
        ("Repeats", _repeated(found)),
        *enforcement(about),
        ("Price", f"{found.price:g} per hour of this machine, in your currency"),
        ("Baseline", found.baseline),
    ]
    if "cost_model" in model:
        lines.insert(2, ("Cost model", f"{model['cost_model']}, for strategies that predict times"))
    others = {
        name: cores
        for name, cores in about.get("cores_of_other_processes", {}).items()
        if cores > 0.1
    }
    if others:
        cores_text = ", ".join(f"{name} {cores:.1f}" for name, cores in others.items())
        lines.append(
            (
                "Disturbed",
                f"Other processes took these cores meanwhile, so times are long: {cores_text}",
            )
        )
    return lines


def beyond_model(found: Analysis) -> str:
    """Which strategies had larger steps than the cost model was fitted to; empty: none had."""
    origin = found.report.about.get("simulated")
    if not origin or origin["cost_model"] != provenance.MEASURED:
        return ""
    rows = {
        name: max((step.rows for run in runs for step in run.steps), default=0)
        for name, runs in found.report.runs.items()
    }
    beyond = [f"{name} had some of {most}" for name, most in rows.items() if most > origin["slots"]]
    if not beyond:
        return ""
    return (
        f"The cost model was fitted to steps of up to {origin['slots']} rows; "
        f"{', '.join(beyond)}, whose times are extrapolated."
    )


def enforcement(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fact that limits were enforced; empty if they were not."""
    return [("Enforced", ENFORCED)] if about.get("enforced") else []


def _repeated(found: Analysis) -> str:
    many = len(next(iter(found.report.runs.values()), ()))
    how = ": the same arrivals, other residuals of the steps"
    return f"{many}{how if many > 1 and 'simulated' in found.report.about else ''}"


def _machine(found: Analysis) -> list[tuple[str, str]]:
    """The machine that served the runs; for a simulation, the cost model's origin."""
    about = found.report.about
    if "simulated" in about:
        beyond = beyond_model(found)
        return provenance.facts(about["simulated"]) + ([(BEYOND, beyond)] if beyond else [])
    machine = about["machine"]
    text = f"{machine['cores']} cores of {machine['processor']}; {machine['system']}; "
    return [("Machine", f"{text}Python {machine['python']}, torch {machine['torch']}")]


def _rate(work: Mapping[str, Any]) -> str:
    text = f"{figures(work['requests_per_second'])} requests / s, {work['requests']:,} in all"
    return text if not (shorter := cut_text(work["cut_to_context"])) else f"{text}; {shorter}"


def cut_text(cut: Mapping[str, Any]) -> str:
    """How many requests were cut to the model's context; empty if none was."""
    if not cut["requests"]:
        return ""
    return (
        f"{cut['requests']:,} are cut to the context, which takes away "
        f"{share(cut['share'])} of all tokens"
    )


def traffic_text(work: Mapping[str, Any]) -> str:
    """Where the requests came from, by endpoint if the report says so."""
    lanes = work.get("lanes")
    if isinstance(lanes, dict):
        return "; ".join(f"{name}: {_lane(each)}" for name, each in lanes.items())
    return (
        f"{work['trace']}; {work['trace_seconds_used']:.0f} s of it, {_pace(work['time_scale'])}; "
        f"token counts divided by {work['token_scale']}"
    )


def _pace(scale: Any) -> str:
    """How fast the trace was played. scale: seconds of the trace per second of the run."""
    if 0.995 < scale < 1.005:
        return "at its own pace"
    return f"slowed {1 / scale:.1f} times" if scale < 1 else f"sped up {scale:.1f} times"


def _lane(each: dict[str, Any]) -> str:
    shorter = cut_text(each["cut_to_context"])
    shorter = f", {shorter}" if shorter else ""
    if "trace" not in each:
        what = "sessions" if each.get("sessions") else "requests"
        return f"{each['offered']} synthetic {what}{shorter}"
    ends = ", all there is" if each["trace_ends"] else ""
    zeros = each.get("raised_to_1")
    counted = f", {zeros} of which came to 0 and were raised to 1" if zeros else ""
    return (
        f"{each['offered']} requests, the first {each['trace_seconds_used']:.0f} s of "
        f"{each['trace']}{ends}, {_pace(each['time_scale'])}, "
        f"token counts divided by {each['token_scale']:g}{counted}{shorter}"
    )
