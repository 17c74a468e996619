"""What was simulated, as facts for the page: model, traffic, seed, and what limits the figures."""

from headway.commands.simulate.sweep_report import SweepJson, has_requests
from headway.report.formatting import share, threads
from headway.report.run_description import enforcement
from headway.runs import provenance


def facts(sweep: SweepJson) -> list[tuple[str, str]]:
    """The facts, each a (title, text)."""
    about = sweep["simulated"]
    values = ", ".join(f"{value:g}" for value in sweep["values"])
    other = ", with the same arrivals and other residuals of the step times"
    lines = [
        (
            "Model",
            f"{about['model']}, {about['dtype']} on {about['device']}, {threads(about['threads'])}",
        ),
        (
            "Memory",
            f"{sweep['num_blocks']:,} KV blocks of {sweep['block_size']} tokens; context "
            f"{sweep['context']:,} tokens",
        ),
        *provenance.facts(about),
        ("Traffic", f"{sweep['traffic']}; token counts divided by {sweep['token_scale']:g}"),
        (
            "Time",
            f"a warm-up of {share(sweep['warm_up'])} of each simulation, served and not counted; "
            f"{share(sweep['drain'])} more to drain",
        ),
        *enforcement(sweep),
        ("Seed", str(sweep["seed"])),
        ("Repeats", f"{sweep['repeats']}{other if sweep['repeats'] > 1 else ''}"),
    ]
    if rates := [each["rate"] for each in sweep["points"]]:
        loads = [each["load"] for each in sweep["points"]]
        text = f"{_span(rates)} requests / s, {_span(loads)} device-seconds / s at full batches"
        lines.append(("Offered", text))
        counts = sorted({sum(each["offered"].values()) for each in sweep["points"]})
        many = len(sweep["points"]) > 1
        pace = ", faster or slower" if sweep["setting"] in ("rate", "load") else ""
        amount = f"the same {counts[0]:,} at every point{pace}" if many else f"{counts[0]:,}"
        if len(counts) > 1:
            amount = f"{counts[0]:,} to {counts[-1]:,}"
        lines.append(("Requests", amount))
    if values:
        lines.append(("Swept", f"{sweep['setting'].replace('_', ' ')} ({sweep['unit']}): {values}"))
    return [*lines, *_limits(sweep)]


def _limits(sweep: SweepJson) -> list[tuple[str, str]]:
    """What a reader must know before believing some points."""
    about, lines = sweep["simulated"], list[tuple[str, str]]()
    if sweep["setting"] == "slots" and (most := max(sweep["values"])) > about["slots"]:
        text = f"step times were fitted up to {about['slots']} slots; {most:g} are extrapolated"
        lines.append(("Beyond the model", text))
        text = f"as much as they can use, of {sweep['fit']:,} blocks that fit"
        lines.append(("Memory of more slots", text))
    if ended := [f"{each['value']:g}" for each in sweep["points"] if each["trace_ends"]]:
        text = f"the whole trace is offered at {', '.join(ended)}: more --seconds add nothing"
        lines.append(("Trace ends", text))
    if alone := [f"{each['value']:g}" for each in sweep["points"] if not has_requests(each)]:
        text = f"no requests after the warm-up at {', '.join(alone)}, which no curve"
        lines.append(("Not asked", f"{text}, knee or capacity counts: take more --seconds"))
    return lines


def _span(values: list[float]) -> str:
    worst_endpoint_chart, most = f"{min(values):.3g}", f"{max(values):.3g}"
    return (
        worst_endpoint_chart
        if worst_endpoint_chart == most
        else f"{worst_endpoint_chart} to {most}"
    )
