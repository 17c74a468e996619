"""The entry point: an error that the user can fix is one line, an error of ours a traceback."""

import sys

from headway.cli.app import app
from headway.errors import HeadwayError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command. Exit status 2 and one line on stderr if it raises a HeadwayError."""
    try:
        app(prog_name="headway")
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        sys.exit(2)
