"""A cost file of the embedded model, learned in seconds.

python -m benchmarks.lanes.cost FILE     in a process of its own, so that no caller holds torch
"""

import subprocess
import sys
from pathlib import Path

from headway.commands.calibrate.quick import learn_quickly
from headway.costing.calibration import Calibration, write_cost_file
from headway.costing.machine import describe_machine
from headway.runs.live_testbed import kv_bytes_per_token, load_model, make_corpus_testbed

SECONDS, SLOTS, SEED = 4.0, 16, 0


def learned(folder: Path) -> Path:
    """The file's path, in this folder. Raises CalledProcessError if nothing was learned."""
    file = folder / "cost.json"
    subprocess.run([sys.executable, "-m", "benchmarks.lanes.cost", str(file)], check=True)
    return file


def learn(file: Path) -> None:
    loaded = load_model(None, SLOTS)
    testbed = make_corpus_testbed(loaded, None)
    testbed.use_threads(1)  # as the server has for so small a model
    quick = learn_quickly(testbed, SEED, SECONDS)
    found = Calibration(
        model=testbed.model,
        dtype=testbed.dtype,
        device=testbed.device,
        machine=describe_machine(),
        analytical=False,
        cost=quick.cost,
        kv_bytes=kv_bytes_per_token(loaded),
        num_blocks=testbed.num_blocks,
        fit=testbed.fit,
        block_size=testbed.block_size,
        context=testbed.context,
        slots=SLOTS,
    )
    write_cost_file(found, file)
    print(f"a cost model of {quick.steps} steps in {SECONDS:g} s, mean error {quick.error:.0%}")


if __name__ == "__main__":
    learn(Path(sys.argv[1]))
