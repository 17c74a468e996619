"""Where a simulation's step times come from. Every simulated report states this first."""

from collections.abc import Mapping
from typing import Any

from headway.core.cost.step_cost import WHOLE
from headway.costing.calibration import Calibration, doubt

Provenance = Mapping[str, Any]  # as in a report's JSON; empty: nothing was simulated
DESIGNED = "errors_of_designed_alone"
TOLD = ("errors", DESIGNED, "designed", "headway", "seed")  # shown elsewhere, or not in the report
MEASURED, ANALYTICAL = "measured", "data sheets: analytical"


def provenance_of(calibration: Calibration) -> dict[str, Any]:
    """Where a calibration comes from: cost model, model, dtype, device, machine and settings."""
    return {
        "cost_model": ANALYTICAL if calibration.analytical else MEASURED,
        "model": calibration.model,
        "dtype": calibration.dtype,
        "device": calibration.device,
        "executor": calibration.executor,
        "machine": dict(calibration.machine),
        "threads": calibration.threads,
        "slots": calibration.slots,
        "about": dict(calibration.about),
    }


def provenance_sentence(origin: Provenance) -> str:
    """The warning at the top of every simulated report."""
    which = f"a cost model of {origin['model']} in {origin['dtype']}"
    how = "fitted to steps that were measured on"
    if origin["cost_model"] == ANALYTICAL:
        how = "worked out from data sheets (analytical): nobody has measured it on"
    source = f"The times come from {which}, {how} {machine_of(origin)}."
    off = error_summary(origin)
    checked = f" Its steps' errors there, on other traffic: {off}." if off else ""
    doubtful = doubt(origin["about"])
    warning = f" These times are unreliable: {doubtful}." if doubtful else ""
    return f"Simulated: nothing was computed. {source}{checked}{warning}"


def error_summary(origin: Provenance, which: str = "errors") -> str:
    """The errors that `headway calibrate` found, by regime, in percent of a step's time.

    Empty where the cost file states none.
    """
    return "; ".join(
        f"{regime} {100 * each['median'] / WHOLE:+.1f} % in the median, "
        f"{100 * each['p90'] / WHOLE:.1f} % at p90"
        for regime, each in origin["about"].get(which, {}).items()
    )


def machine_of(origin: Provenance) -> str:
    """The machine of the cost model, in a few words."""
    machine = origin["machine"]
    named = machine.get("accelerator") or machine.get("processor")
    if not named:
        return as_text(machine) or str(origin["device"])
    count = f"{machine['cores']} x " if "accelerator" not in machine and "cores" in machine else ""
    return f"{count}{as_text(named)}"


def facts(origin: Provenance) -> list[tuple[str, str]]:
    """What the cost file records about its fit, as pairs of a name and a text."""
    lines = [("Cost model", f"{origin['cost_model']}; fitted up to {origin['slots']} slots")]
    if off := error_summary(origin):
        lines.append(("Its errors", off))
    if off := error_summary(origin, DESIGNED):
        lines.append(("Errors of a fit to designed batches alone", off))
    if designed := origin["about"].get("designed"):
        lines.append(("Designed batches", _designed(designed)))
    if origin["machine"]:
        lines.append(("Its machine", as_text(origin["machine"])))
    stated = [(name, each) for name, each in origin["about"].items() if name not in TOLD]
    return lines + [(name.replace("_", " ").capitalize(), as_text(each)) for name, each in stated]


def _designed(about: Mapping[str, Any]) -> str:
    return (
        f"{about['samples']:,}, of up to {about['largest_tokens']:,} tokens; mean error "
        f"{100 * about['mean_error'] / WHOLE:.1f} %"
    )


def as_text(value: Any) -> str:
    """A JSON value on one line."""
    if isinstance(value, Mapping):
        return "; ".join(
            f"{str(k).replace('_', ' ')}: {as_text(each)}" for k, each in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(as_text(each) for each in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
