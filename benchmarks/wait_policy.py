"""How should the executor's threads wait for each other, on two cores that others also use?

OpenMP's threads meet at a barrier after each operation. How long they spin there before they
sleep is fixed when torch is imported. Decode steps of the embedded model, 16 rows at a context of
100, are timed under several settings, each in a process of its own: alone, and beside a process
that keeps one core busy. Figures are milliseconds per step (median), and the ratio of each setting
to torch's own: `alone_...` on a quiet machine, `beside_...` while a neighbour works.
docs/decisions/0005 says what was decided.
"""

import json
import os
import subprocess
import sys
import time
from statistics import median

from benchmarks.report import Figure, finish, parser

SETTINGS = {
    "torch": {},
    "spin1000": {"GOMP_SPINCOUNT": "1000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "one_thread": {"OMP_NUM_THREADS": "1"},
}
ROWS, CONTEXT, STEPS, ROUNDS = 16, 100, 60, 3
BUSY = [sys.executable, "-c", "while True: pass"]


def steps() -> list[float]:
    """Milliseconds of each decode step; runs in a process of its own."""
    from headway.core.batch import Output
    from headway.core.commands import Add
    from headway.core.policies.policies import Policies
    from headway.core.request import Request
    from headway.core.scheduler import Scheduler
    from headway.core.settings import Settings
    from headway.executor.torch.load import load
    from headway.executor.torch.memory.memory_plan import Limits
    from headway.models import EMBEDDED

    loaded = load(EMBEDDED, Limits(ROWS, context=512))
    scheduler = Scheduler(Settings(loaded.plan.num_blocks, policies=Policies(step_tokens=4_096)))
    prompts = [tuple(100 + (i * 7 + j) % 3_000 for j in range(CONTEXT)) for i in range(ROWS)]
    scheduler.apply([Add(Request(f"r{i}", p, STEPS + 9, 0)) for i, p in enumerate(prompts)], 0)
    times = []
    for _ in range(STEPS + 6):
        batch = scheduler.schedule(0)
        began = time.perf_counter()
        output: Output = loaded.executor.collect(loaded.executor.submit(batch))
        times.append((time.perf_counter() - began) * 1e3)
        scheduler.commit(batch, output, 1)
    return times[6:]  # the prompts' step, and a few to warm up


def measured(setting: dict[str, str]) -> float:
    command = [sys.executable, "-m", "benchmarks.wait_policy", "--steps"]
    done = subprocess.run(
        command, env={**os.environ, **setting}, capture_output=True, text=True, check=True
    )
    return float(median(json.loads(done.stdout)))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--steps", action="store_true", help="one setting's steps, as JSON")
    if options.parse_args().steps:
        print(json.dumps(steps()))
        return 0
    alone: dict[str, list[float]] = {name: [] for name in SETTINGS}
    beside: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(ROUNDS):  # interleaved, so that a slow moment falls on all alike
        for name, setting in SETTINGS.items():
            alone[name].append(measured(setting))
        neighbour = subprocess.Popen(BUSY)
        try:
            for name, setting in SETTINGS.items():
                beside[name].append(measured(setting))
        finally:
            neighbour.kill()
            neighbour.wait()
    figures = [Figure(f"{name}_alone_ms", times, unit="ms") for name, times in alone.items()]
    figures += [Figure(f"{name}_beside_ms", times, unit="ms") for name, times in beside.items()]
    for where, times in (("alone", alone), ("beside", beside)):
        for name in list(SETTINGS)[1:]:
            pairs = zip(times[name], times["torch"], strict=True)
            figures.append(Figure(f"{where}_{name}", [theirs / torchs for theirs, torchs in pairs]))
    return finish("wait_policy", __doc__ or "", 0, figures)


if __name__ == "__main__":
    sys.exit(main())
