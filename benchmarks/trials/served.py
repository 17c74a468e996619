"""`headway serve` with a clock for a device: its engine's process runs benchmarks.trials.paced.

    python -m benchmarks.trials.served MACHINE [ARGUMENTS OF headway]

MACHINE: a Machine as JSON.
"""

import json
import sys
from functools import partial

from benchmarks.trials.late import Planted
from benchmarks.trials.paced import Machine, run_paced
from headway.cli.app import app
from headway.server.engine import client


def main() -> None:
    fields = json.loads(sys.argv.pop(1))
    planted = Planted(**fields.pop("planted")) if fields["planted"] else None
    machine = Machine(**{**fields, "planted": planted})
    vars(client)["run"] = partial(run_paced, machine)  # what it starts as the engine's process
    app()


if __name__ == "__main__":
    main()
