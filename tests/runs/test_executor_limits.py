"""Measurements on an executor that runs no groups or has fixed threads."""

from dataclasses import replace

from headway.commands.calibrate.design import Design
from headway.commands.calibrate.trials import Trials
from headway.costing.request_spec import RequestSpec
from headway.executor.traits import Traits
from headway.runs.machine_speed import choose_threads, warm_up
from headway.sim.executor import Filler
from headway.traffic.prompts import Prompts
from tests.commands.testbeds import fake_testbed

SPECS = [RequestSpec(0, "chat", 40 + i, 3) for i in range(4)]


class Seen(Filler):
    """Counts the steps that were padded."""

    def __init__(self, traits):
        super().__init__()
        self.traits, self.padded = traits, 0

    def submit(self, batch):
        self.padded += batch.width > 0
        return super().submit(batch)


def test_an_executor_without_groups_is_warmed_up_without_them():
    for traits, padded in ((Traits(), True), (Traits(exclusive_groups=False), False)):
        executor = Seen(traits)
        testbed = fake_testbed(executor=executor)
        warm_up(testbed, SPECS, Prompts(testbed.text, testbed.block_size, 0))
        assert (executor.padded > 0) is padded


def test_no_other_thread_count_is_tried_on_an_executor_with_fixed_threads():
    asked = []
    free = replace(fake_testbed(), threads=4, use_threads=asked.append)
    kept = replace(free, fixed_threads=True)
    assert (free.thread_choices, kept.thread_choices) == ([1, 4], [4])
    prompts = Prompts(kept.text, kept.block_size, 0)
    assert choose_threads(kept, SPECS, prompts) == 4 and set(asked) == {4}
    assert Trials(kept, 0).choose_threads([Design((8,))]) == 4 and set(asked) == {4}
    assert choose_threads(free, SPECS, prompts) == 1, "four were no faster"
    assert set(asked) == {1, 4}
