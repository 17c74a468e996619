"""A clock that only work moves (WorkClock): then no verdict depends on the machine's speed."""

import asyncio
from random import Random
from types import SimpleNamespace

from headway.core.cost.step_cost import StepCost
from headway.executor.fake import FakeExecutor
from headway.live.clock import WallClock
from headway.server import clock
from headway.server.versions import live_trial
from tests.server.running_server import by_budgets, until

STEP, THINKING = 0.005, 0.01  # seconds


class WorkClock:
    """The clock of the server, its engines and its trial. Only steps and the caller move it. One
    caller sends one request at a time, and between two requests the trial does all that is due.
    So no time and no verdict depends on how threads take turns."""

    def __init__(self):
        self._now = 10**12  # nanoseconds
        self._looks = 0  # when the trial looks again
        self._asking = False

    def now(self):
        return self._now

    def add(self, seconds):
        self._now += round(seconds * 1e9)

    async def sleep(self, seconds):
        """The trial's sleep."""
        looks = self._now + round(seconds * 1e9)
        await asyncio.sleep(0)  # the trial judges
        self._looks = looks
        while self._asking or self._now < looks:
            await asyncio.sleep(0.0005)

    def rules(self, monkeypatch):
        """Make this the clock until the test is over."""

        async def at_once(function, *arguments):
            return function(*arguments)

        theirs = {"sleep": self.sleep, "to_thread": at_once}
        monkeypatch.setattr(live_trial, "asyncio", SimpleNamespace(**vars(asyncio) | theirs))
        monkeypatch.setattr(clock, "now", self.now)
        monkeypatch.setattr(WallClock, "now", lambda wall: self.now())

    def slowed(self, config):
        """An engine for which version 2 has slow steps."""
        executor = Slowed(self)
        local = by_budgets(config, executor, StepCost())
        executor.scheduler = local.live._engine.scheduler
        return local

    def asked(self, front, ask):
        """Call ask(number) until no trial is running. Returns the answers."""
        keeper, answers = front.versions.of_model(""), []
        while keeper.live:
            until(lambda: self._now < self._looks or not keeper.live)  # the trial has had its turn
            self._asking = True
            answers.append(ask(len(answers)))
            self.add(THINKING)
            self._asking = False
        return answers


class Slowed(FakeExecutor):
    """Steps of 5 ms, or of 35 ms while version 2 is in force: the planted fault. Both vary by
    half."""

    def __init__(self, work_clock):
        super().__init__(512, 16)
        self._clock, self._draw = work_clock, Random(1)

    def submit(self, batch):
        step = STEP * (7 if self.scheduler.settings.version == 2 else 1)
        self._clock.add(step * self._draw.uniform(0.5, 1.5))
        return super().submit(batch)
