"""The entry point: an error that the user can fix is one line, an error of ours a traceback."""

import os
import sys
from errno import ENOSPC, EPIPE
from io import TextIOWrapper

from headway.cli.app import app
from headway.errors import HeadwayError
from headway.printable import harmless

__all__ = ["app", "main"]


def main() -> None:
    """Run the command. Exit status 2 and one line on stderr if it raises a HeadwayError, if a
    library of an extra is not installed, or if there is no room for what it writes."""
    if isinstance(sys.stdout, TextIOWrapper):  # what the terminal's encoding lacks is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="headway")
        finally:
            if sys.stdout:  # None: it was closed from the beginning
                sys.stdout.flush()
    except HeadwayError as error:
        print(f"headway: {harmless(str(error))}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as missing:
        from headway.cli.extras import remedy

        if not (said := remedy(missing)):
            raise
        print(f"headway: {said}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in (ENOSPC, EPIPE):
            raise
        # What stdout still holds is dropped: the interpreter would fail at it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == EPIPE:  # nobody reads it any more
            sys.exit(1)
        where = error.filename or "the output"
        print(f"headway: {where} cannot be written: no space left on device", file=sys.stderr)
        sys.exit(2)
