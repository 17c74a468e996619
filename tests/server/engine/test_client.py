"""The engine in a process of its own: it serves, drains and dies. With the embedded model, or with
the fake executor where it does not matter what is computed."""

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from headway.commands.replay.recording import load
from headway.commands.replay.rerun import rerun_journal
from headway.core.batch import Event
from headway.core.commands import Add, Cancel
from headway.core.cost.step_cost import StepCost
from headway.core.grammar import Grammar
from headway.core.lane import Lane
from headway.core.load import LaneLoad, Load
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.request import Finish, Request
from headway.core.sampling import Sampling
from headway.costing.calibration import write_cost_file
from headway.errors import (
    CheckpointError,
    DrainingError,
    EngineDownError,
    JournalError,
    RefusedError,
    SettingError,
)
from headway.journal import journal
from headway.live.callers import heard
from headway.live.clock import WallClock
from headway.llm.llm import LLM
from headway.llm.options import Options
from headway.models import display_name
from headway.server.engine import engine_process, own_process
from headway.server.engine.client import EngineClient
from headway.server.engine.handle import EngineState
from headway.server.engine.messages import EngineOptions, Step, Welcome
from headway.sim.replay import replay
from tests.commands.small_cost_model import CALIBRATION
from tests.server.fake_engines import FakeEngine

POLICIES = Policies(Continuous(4), step_tokens=512)
SIZES = {"dtype": "float32", "policies": POLICIES, "slots": 4, "context": 512, "threads": 1}
OPTIONS, FAKE = EngineOptions(**SIZES), FakeEngine(**SIZES)
PROMPT = tuple(range(3, 20))
LONG = 400


class Heard:
    """A caller that must be told on the loop's thread."""

    def __init__(self):
        self.news, self.flushes = asyncio.Queue(), 0

    def tell(self, news):
        asyncio.get_running_loop()  # RuntimeError on any other thread
        self.news.put_nowait(news)

    def flush(self):
        self.flushes += 1

    async def end(self):
        """Return all tokens and the finish. Raises EngineDownError if the engine ends."""
        tokens = []
        async with asyncio.timeout(60):
            while True:
                event = heard(await self.news.get())
                tokens += event.tokens
                if event.finish:
                    return tokens, event.finish


def request(id, prompt=PROMPT, most=12, **rest):
    return Request(id, prompt, most, 0, **rest)


def ask(remote, *args, **rest):
    caller = Heard()
    remote.submit([request(*args, **rest)], caller)
    return caller


def served(work, options=FAKE):
    """Run `work(remote)` with a ready engine; its process is gone afterwards."""

    async def main():
        remote = EngineClient(options)
        await remote.start()
        pid = remote.pid
        try:
            return await work(remote)
        finally:
            await remote.close()
            with pytest.raises(ProcessLookupError):  # neither running nor a zombie
                os.kill(pid, 0)

    return asyncio.run(main())


def costs(path, model, **rest):
    """Options with a cost file of this model that prices steps at nearly nothing."""
    write_cost_file(replace(CALIBRATION, model=model, cost=StepCost.of(1)), path)
    return replace(OPTIONS, cost=str(path), **rest)


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """One engine for the tests that leave it unchanged; its lane lets six requests wait. Gives a
    function that runs `work(remote)` on its loop, its progress while loading, and its welcome."""
    path = tmp_path_factory.mktemp("ready") / "cost.json"
    options = costs(path, display_name(None), lanes=(Lane(max_waiting=6),))
    with asyncio.Runner() as runner:
        said = []

        async def start():
            remote = EngineClient(options)
            return remote, await remote.start(said.append)

        remote, welcome = runner.run(start())
        try:
            yield lambda work: runner.run(work(remote)), said, welcome
        finally:
            runner.run(remote.close())


def test_loading_reports_its_progress_and_ends_with_the_welcome(ready):
    run, said, welcome = ready
    steps = "preparing steps of every size"
    assert said == ["starting torch", f"loading the weights of {display_name(None)}", steps]
    about = welcome.model, welcome.dtype, welcome.context
    assert about == (display_name(None), "float32", 512)

    async def work(remote):
        assert welcome.num_blocks == remote.load.num_blocks and welcome.eos

    run(work)


def test_a_request_is_refused_while_the_engine_is_loading():
    async def main():
        remote = EngineClient(OPTIONS)
        assert remote.state is EngineState.LOADING
        with pytest.raises(EngineDownError, match="still loading"):
            remote.submit([request("a")], Heard())

    asyncio.run(main())


def test_steps_are_compared_with_the_cost_file_and_another_models_is_refused(ready, tmp_path):
    async def work(remote):
        await ask(remote, "a", most=40).end()
        return remote.load.drift

    assert ready[0](work) > 1_000
    other = EngineClient(costs(tmp_path / "other.json", "gpt"))
    with pytest.raises(SettingError, match=r"is of gpt in float32, not of headway-tiny \(embedded"):
        asyncio.run(other.start())


def test_the_engine_process_computes_the_same_as_a_thread(ready):
    async def work(remote):
        assert remote.state is EngineState.READY and remote.load.capacity == 512
        rows = []
        remote.rows = lambda steps, requests: rows.extend(requests)
        callers = [ask(remote, f"r{i}", (i + 3, *PROMPT)) for i in range(6)]
        ends = [await each.end() for each in callers]
        assert sorted(row.id for row in rows) == [f"r{i}" for i in range(6)]
        assert callers[0].flushes <= 12
        return [tokens for tokens, _ in ends]

    found = ready[0](work)
    with LLM(dtype="float32", slots=4, context=512) as llm:
        prompts = [(i + 3, *PROMPT) for i in range(6)]
        alone = llm.generate(prompts, Options(max_tokens=12, ignore_eos=True), progress=False)
    assert found == [list(each.tokens) for each in alone]


def test_an_error_of_the_starting_process_is_raised_in_the_front(tmp_path):
    async def main():
        remote = EngineClient(replace(OPTIONS, model=str(tmp_path / "nothing")))
        with pytest.raises(CheckpointError) as caught:
            await remote.start()
        assert remote.state is EngineState.DOWN and remote.down == str(caught.value)
        await remote.close()

    asyncio.run(main())


def test_a_cancel_a_stop_and_a_deadline_reach_the_engine(ready):
    async def work(remote):
        cancelled, stopped = ask(remote, "a", most=LONG), ask(remote, "b", most=LONG)
        first = heard(await cancelled.news.get())
        assert isinstance(first, Event)
        remote.cancel(["a", "unknown"])
        remote.stop("b", 1)
        late = ask(remote, "c", end_by=1)
        assert (await cancelled.end())[1] is Finish.CANCELLED
        assert (await stopped.end())[1] is Finish.STOP
        assert await late.end() == ([], Finish.EXPIRED)
        await ask(remote, "d", most=1).end()
        assert remote.load.free_blocks == remote.load.num_blocks

    ready[0](work)


def test_a_burst_is_bounded_at_admission(ready):
    async def work(remote):
        callers, refused = [], 0
        for i in range(9):  # without a pause, so that no snapshot comes in between
            try:
                callers.append(ask(remote, f"r{i}"))
            except RefusedError as error:
                assert "6 requests wait" in str(error)
                refused += 1
        assert (len(callers), refused) == (6, 3)
        assert [(await each.end())[1] for each in callers] == [Finish.LENGTH] * 6

    ready[0](work)


@pytest.mark.parametrize(
    ("harm", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")]
)
def test_killing_the_process_fails_every_caller_at_once(harm, name):
    async def work(remote):
        callers = [ask(remote, f"r{i}", most=LONG) for i in range(6)]
        heard(await callers[0].news.get())
        os.kill(remote.pid, harm)
        async with asyncio.timeout(60):
            for each in callers:
                with pytest.raises(EngineDownError, match=f"has died: killed by {name}"):
                    await each.end()
            while remote.state is not EngineState.DOWN:
                await asyncio.sleep(0.01)
        assert name in remote.down
        with pytest.raises(EngineDownError, match=name):
            remote.submit([request("late")], Heard())
        await remote.drain(1)

    served(work)


def test_only_the_front_acts_on_a_signal_to_the_process_group(ready):
    async def work(remote):
        caller = ask(remote, "a", most=LONG)
        heard(await caller.news.get())
        for each in (signal.SIGINT, signal.SIGTERM):
            os.kill(remote.pid, each)
        assert (await caller.end())[1] is Finish.LENGTH

    ready[0](work)


def test_a_drain_finishes_accepted_requests(tmp_path):
    path = tmp_path / "run.jsonl"

    async def work(remote):
        callers = [ask(remote, f"r{i}", most=40) for i in range(6)]
        draining = asyncio.create_task(remote.drain(60))
        await asyncio.sleep(0)
        assert remote.state is EngineState.DRAINING
        with pytest.raises(RefusedError, match="the engine is closing"):
            remote.submit([request("late")], Heard())
        assert [(await each.end())[1] for each in callers] == [Finish.LENGTH] * 6
        await draining
        about = remote.state, remote.down, remote.pid
        assert about == (EngineState.DRAINING, "", 0), "there is no fault"
        with pytest.raises(DrainingError, match="the engine is closed"):
            remote.submit([request("a")], Heard())

    served(work, replace(FAKE, journal=str(path)))
    (found,) = tmp_path.iterdir()
    assert found != path, "each start has a journal of its own"
    scheduler, _ = replay(*journal.read(found.read_text().splitlines()))
    assert len(scheduler.ledger.requests) == 6 and scheduler.finished


def test_an_impossible_journal_is_refused_before_the_model_is_loaded(tmp_path):
    options = replace(OPTIONS, model=str(tmp_path / "no-model"))
    for path, words in ((tmp_path / "no" / "a.jsonl", "no such folder"), (tmp_path, "is a folder")):
        said, remote = [], EngineClient(replace(options, journal=str(path)))
        with pytest.raises(JournalError, match=words):
            asyncio.run(remote.start(said.append))
        assert said == []


def test_a_journal_that_cannot_grow_stops_without_stopping_the_engine(tmp_path, capfd):
    """A limit on the size of the process's files acts like a full disk for this process alone."""

    async def work(remote):
        assert remote.journal == ""
        limit = (sum(each.stat().st_size for each in tmp_path.iterdir()) + 3_000,) * 2
        resource.prlimit(remote.pid, resource.RLIMIT_FSIZE, limit)
        for name in ("a", "b"):
            assert (await ask(remote, name, most=100).end())[1] is Finish.LENGTH
        assert remote.journal == "File too large" and remote.state is EngineState.READY

    served(work, replace(FAKE, journal=str(tmp_path / "run.jsonl")))
    (path,) = tmp_path.iterdir()
    recording = load(path)
    assert recording.records and not recording.cut, "its last line is complete"
    rerun_journal(recording)
    assert f"{path.name} has stopped: File too large" in capfd.readouterr().err


def test_requests_that_outlast_a_drain_are_told_why():
    async def work(remote):
        rows = []
        remote.rows = lambda steps, requests: rows.extend(requests)
        callers = [ask(remote, f"r{i}", most=LONG) for i in range(2)]
        heard(await callers[0].news.get())
        await remote.drain(0.0, 4.0)  # of the 4 s, routes took the rest
        for each in callers:
            with pytest.raises(DrainingError, match="closing, and this did not end within 4 s"):
                await each.end()
        assert [row.finish for row in rows] == [Finish.CANCELLED] * 2, "the ledger is complete"

    served(work)


def test_grammars_are_compiled_before_the_engine_sees_their_requests():
    inbox, seen = engine_process.CountingInbox(WallClock()), []

    def compile(grammar):
        seen.append((grammar.text, inbox.poll()))
        if grammar.text == "[":
            raise SettingError("it cannot be compiled")

    inbox.compile = compile
    held = [
        Add(request(text, sampling=Sampling(grammar=Grammar("regex", text)))) for text in ("a", "[")
    ]
    free = Add(request("free"))
    inbox.put([free])
    inbox.put([*held, Cancel("a")])
    assert seen == [("a", [free]), ("[", [])]
    assert inbox.poll() == [*held, Cancel("a")], "whether it was compiled or not"
    assert inbox.taken == 3


class ByHand:
    """A clock and a loop's timers, which fire when a test advances the time."""

    def __init__(self):
        self.time, self.timers = 0.0, []

    def now(self):
        return int(self.time * 1e9)

    def call_later(self, seconds, call):
        self.timers.append((self.time + seconds, call))

    def advance(self, time):
        while due := [each for each in self.timers if each[0] <= time]:
            first = min(due, key=lambda each: each[0])
            self.timers.remove(first)
            self.time, call = first
            call()
        self.time = time


class Told:
    """A caller on any thread."""

    def __init__(self):
        self.news = []

    def tell(self, news):
        self.news.append(news)

    def flush(self):
        pass


def test_callers_of_a_hanging_engine_are_told_once_it_counts_as_hung():
    """Without a process: the engine is silent after its second step."""
    hand = ByHand()
    remote, caller, rows = EngineClient(OPTIONS), Told(), []
    remote._clock = remote._loop = hand
    remote._welcome = SimpleNamespace(cancelled=lambda: True, done=lambda: True)
    remote.rows = lambda steps, requests: rows.append(hand.time)

    def step(running, taken):
        remote._take(Step([], [], [], load._replace(running=running), taken))

    load = Load(lanes={"default": LaneLoad(Lane(), 0, 0)}, num_blocks=9, capacity=512)
    remote._take(Welcome("m", "", None, "", "", 512, 9, 16, 512, frozenset(), "", load))
    hand.advance(1_000)
    assert remote.state is EngineState.READY, "it has no work"
    remote.submit([request("a")], caller)
    hand.advance(1_100)
    step(1, 1)
    hand.advance(1_219)
    step(1, 1)
    hand.advance(1_338)
    assert remote.state is EngineState.READY and not caller.news
    hand.advance(1_340)
    why = "the engine has work and has said nothing for 120 s: its device may hang"
    assert [str(each) for each in caller.news] == [why]
    assert (remote.state, remote.down) == (EngineState.DOWN, why)
    with pytest.raises(EngineDownError, match="its device may hang"):
        remote.submit([request("b")], caller)
    step(0, 1)
    assert rows == [1_100, 1_219] and remote.state is EngineState.DOWN, (
        "what comes later is ignored"
    )
    remote._ended(0)
    assert remote.down == why and len(caller.news) == 1 and not hand.timers


def test_the_front_loads_no_torch_and_leaves_no_orphan():
    """One front process ends without telling its engine, and another one is killed."""
    code = """
import asyncio, os, sys
from headway.server.engine.client import EngineOptions, EngineClient
from tests.server.fake_engines import FakeEngine

async def main():
    remote = EngineClient({"ends": EngineOptions, "killed": FakeEngine}[sys.argv[1]](context=64))
    await remote.start()
    assert "torch" not in sys.modules
    print(remote.pid, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), 9)

if __name__ == "__main__":
    asyncio.run(main())
"""
    for how in ("ends", "killed"):
        done = subprocess.run(
            [sys.executable, "-c", code, how], capture_output=True, text=True, timeout=120
        )
        pid = json.loads(done.stdout)
        assert done.returncode == (-9 if how == "killed" else 0), done.stderr
        wait_until_gone(pid)


def wait_until_gone(pid):
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([process], [], [], 30)[0], "the engine process was orphaned"
    os.close(process)


def test_a_front_that_reads_nothing_does_not_block_the_engine_for_ever(monkeypatch):
    monkeypatch.setattr(own_process, "STALL", 1)
    ours, theirs = Pipe()
    own_process.limit_stall(theirs)
    with pytest.raises(BlockingIOError):
        while True:  # into the kernel's buffer, until it is full
            theirs.send(bytes(10_000))
    ours.close()
    theirs.close()


def test_reading_from_the_engine_stops_while_the_loop_is_behind(ready):
    """The messages that have arrived and are not yet taken are bounded, and none is lost."""

    async def work(remote):
        caller = ask(remote, "a", most=LONG)
        first = heard(await caller.news.get()).tokens
        while remote._process.room._value:  # block the loop until the reader waits for it
            pass
        tokens, finish = await caller.end()
        assert finish is Finish.LENGTH and len(first) + len(tokens) == LONG

    ready[0](work)


def test_a_caller_that_raises_does_not_hide_the_end_of_the_process():
    class Breaks:
        def tell(self, news):
            raise ValueError("mine")

    async def main():
        remote = EngineClient(EngineOptions())
        remote._welcome = asyncio.get_running_loop().create_future()
        remote._callers.add(["a"], Breaks())
        with pytest.raises(ExceptionGroup):
            remote._ended(-signal.SIGKILL)
        async with asyncio.timeout(30):
            await remote.over()
        assert remote.state is EngineState.DOWN and remote._welcome.done()

    asyncio.run(main())
