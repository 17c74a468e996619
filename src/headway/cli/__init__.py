"""The entry point: one line for what the user can mend, a traceback for what is our fault."""

import sys

from headway.cli import local, modelled, serving
from headway.cli.app import app
from headway.errors import HeadwayError

__all__ = ["app", "local", "main", "modelled", "serving"]


def main() -> None:
    try:
        app()
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        sys.exit(2)
