"""A sweep's verdict: which strategies keep every budget and up to where, the cheapest first."""

from headway.commands.simulate.sweep_report import SweepJson, curve_values, has_requests
from headway.report.formatting import share

Kept = tuple[str, list[float]]  # a strategy, and the values at which it keeps every budget


def verdict(sweep: SweepJson) -> list[str]:
    """The verdict in sentences, the answer first. At a fixed price per hour, a higher capacity is
    cheaper."""
    goal = f"{share(sweep['share'])} of every endpoint's requests inside their budget"
    if not sweep["capacity"]:
        return _by_value(sweep, goal)
    kept = [name for name in ranked(sweep) if _rate(sweep, name)]
    unit = sweep["unit"]
    if not kept:
        lines = [f"No strategy is known to keep {goal}."]
    else:
        named = ", ".join(f"{name} {_up_to(sweep, name)}" for name in kept)
        cheapest = ", the cheapest first" if len(kept) > 1 else ""
        lines = [f"Keeps {goal}{cheapest}: {named} {unit}."]
    missed = [name for name, each in sweep["capacity"].items() if not each["rate"]]
    unknown = [
        name for name, each in sweep["capacity"].items() if each["rate"] and name not in kept
    ]
    if missed:
        lines.append(f"Misses budgets at every {sweep['setting']} tried: {', '.join(missed)}.")
    if unknown:
        lines.append(f"Too few requests to tell: {', '.join(unknown)}.")
    return lines


def ranked(sweep: SweepJson) -> list[str]:
    """The strategies by cost per request at their capacity: the highest capacity first.

    Without capacities: by the number of values that keep every budget, most first. The less busy
    engine wins a tie.
    """
    names: list[str] = sweep["strategies"]
    if sweep["capacity"]:
        return sorted(names, key=lambda name: -_rate(sweep, name))
    kept = dict(_kept(sweep))
    return sorted(names, key=lambda name: (-len(kept[name]), _busy(sweep, name)))


def machine_seconds(sweep: SweepJson, name: str) -> float | None:
    """Machine seconds per request at the strategy's capacity; None if unknown."""
    rate = _rate(sweep, name) if sweep["setting"] == "rate" and sweep["capacity"] else 0.0
    return 1 / rate if rate else None


def worst(sweep: SweepJson, name: str) -> list[tuple[float, float]]:
    """The share in budget of the worst endpoint, at every value of the sweep."""
    least = dict[float, float]()
    for lane in sweep["lanes"]:
        for value, kept in curve_values(sweep, name, "attainment", lane):
            least[value] = min(kept, least.get(value, 1.0))
    return sorted(least.items())


def _rate(sweep: SweepJson, name: str) -> float:
    """The capacity; 0 if there is none, or if it rests on too few requests."""
    found = sweep["capacity"].get(name)
    return float(found["rate"]) if found and found["enough"] else 0.0


def _up_to(sweep: SweepJson, name: str) -> str:
    """Up to which rate the strategy keeps the budgets. No higher rate may have been tried."""
    found = sweep["capacity"][name]
    return f"up to {'at least ' if found['broken'] is None else ''}{found['rate']:.3g}"


def _by_value(sweep: SweepJson, goal: str) -> list[str]:
    points = [point for point in sweep["points"] if has_requests(point)]
    kept, setting = dict(_kept(sweep)), sweep["setting"].replace("_", " ")
    if not points:
        return []
    named = [name for name in ranked(sweep) if kept[name]]
    if not named:
        return [f"No strategy keeps {goal} at any {setting} that was simulated."]
    values = "; ".join(f"{name} at {', '.join(f'{v:g}' for v in kept[name])}" for name in named)
    missed = [name for name in sweep["strategies"] if name not in named]
    rest = [f"Misses budgets at every {setting}: {', '.join(missed)}."] if missed else []
    return [f"Keeps {goal}, by {setting}: {values}.", *rest]


def _kept(sweep: SweepJson) -> list[Kept]:
    return [
        (name, [value for value, kept in worst(sweep, name) if kept >= sweep["share"]])
        for name in sweep["strategies"]
    ]


def _busy(sweep: SweepJson, name: str) -> float:
    return min((busy for _, busy in curve_values(sweep, name, "busy")), default=0.0)
