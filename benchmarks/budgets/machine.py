"""The embedded model on this machine, in the place of the data sheet's accelerator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from benchmarks.budgets.mixes import MIXES, SEED, Mix, Place, Source
from headway.commands.calibrate.learn import conclude, measure_steps
from headway.costing.calibration import Calibration, read_cost_file
from headway.costing.request_spec import RequestSpec
from headway.models import display_name
from headway.runs.live_testbed import kv_bytes_per_token, load_model, make_corpus_testbed
from headway.runs.machine_speed import measure_token_cost
from headway.runs.simulated_testbed import simulated_testbed
from headway.runs.testbed import Testbed
from headway.strategies.strategy import SLOTS
from headway.traffic.prompts import Prompts

CALIBRATING = 40.0  # seconds
THREADS = 1  # the model's products are small


@dataclass
class EmbeddedModel:
    """cost: a file of `headway calibrate`; None: its steps are measured now."""

    cost: Path | None = None

    @cached_property
    def calibration(self) -> Calibration:
        """Raises SettingError for a file that is not this model's, HeadwayError where other
        processes take too much of the machine."""
        if self.cost:
            found = read_cost_file(self.cost)
            found.check_model(display_name(None))
            return found
        testbed, kv_bytes = self._load(SLOTS)
        measured = measure_steps(testbed, SLOTS, THREADS, SEED, CALIBRATING, checking=0.0)
        return conclude(testbed, kv_bytes, measured)

    @cached_property
    def testbed(self) -> Testbed:
        """The loaded model, on the wall clock."""
        return self._load(self.calibration.slots)[0]

    @property
    def name(self) -> str:
        """Another cost model is another machine."""
        return f"embedded {sha256(repr(self.calibration.cost).encode()).hexdigest()[:12]}"

    def places(self, windows: Mapping[str, Sequence[Source]]) -> dict[str, Place]:
        """By mix; see `place`."""
        return {
            name: place(MIXES[name], found[0], self.calibration) for name, found in windows.items()
        }

    def _load(self, slots: int) -> tuple[Testbed, int]:
        loaded = load_model(None, slots)
        testbed = make_corpus_testbed(loaded, None)
        testbed.use_threads(THREADS)
        return testbed, kv_bytes_per_token(loaded)


def place(mix: Mix, window: Source, priced: Calibration) -> Place:
    """Lengths are divided so that the longest fits. Times are stretched or compressed until load 1
    is as much work for this machine as for the data sheet's, in device-seconds a second."""
    scale = max(1.0, mix.context / priced.context)
    ours = work(priced, mix.on(Place(priced, scale, 1.0)).specs(window))
    return Place(priced, scale, ours / work(mix.calibration(), mix.specs(window)))


def work(priced: Calibration, specs: Sequence[RequestSpec]) -> float:
    """Predicted nanoseconds of these requests at full batches, none of them cached."""
    testbed = simulated_testbed(priced, SEED)
    prompts = Prompts(testbed.text, testbed.block_size, SEED)
    return measure_token_cost(testbed, specs, prompts).of(specs)
