"""Which extra of the package brings a library that is not installed."""

import re
from importlib.metadata import PackageNotFoundError, requires

# Looked into in this order, for a library that several have.
EXTRAS = ("server", "torch", "jobs", "ledger", "postgres", "otel", "calibrate", "bench")
REQUIRED = re.compile(r"([\w.-]+).*\bextra == ['\"](\w+)['\"]")


def remedy(missing: ModuleNotFoundError) -> str:
    """What to say of a library that is not installed; empty if no extra has it."""
    name = (missing.name or "").partition(".")[0]
    try:
        needed = [REQUIRED.match(each) for each in requires("headway") or ()]
    except PackageNotFoundError:  # it runs from its folder alone
        return ""
    having = {found[2] for found in needed if found and found[1].lower() == name.replace("_", "-")}
    found = [extra for extra in EXTRAS if extra in having]
    return f"{name} is not installed: pip install 'headway[{found[0]}]'" if found else ""
