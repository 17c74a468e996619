"""The terminal that commands print to."""

from rich.console import Console


def screen() -> Console:
    """It prints names as users gave them: no part of them is markup, as in '[red]voice'."""
    return Console(markup=False, emoji=False)
