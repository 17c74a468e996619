"""The engine's own process: the model, the one loop, and a pipe to the server.

The process has two threads. The main one schedules and computes; a reader puts the server's
commands into the inbox. The kernel's buffer holds what the server has not read yet.
"""

import gc
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from secrets import token_bytes

from headway.core.accounts.accounts import Accounts
from headway.core.commands import Add, Command
from headway.core.grammar import Grammar
from headway.core.policies.chunk import Whole
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.costing.calibration import read_cost_file
from headway.engine import Engine, Executor, forgotten
from headway.errors import (
    EngineDownError,
    HeadwayError,
    JournalError,
    SettingError,
    TokenizerError,
    first_line,
)
from headway.executor.guarded import GuardedExecutor
from headway.executor.load import load
from headway.executor.loaded import Loaded, settings_of
from headway.executor.tokenizer_beside import tokenizer_beside
from headway.executor.torch.loading.checkpoint import local_folder, locate
from headway.journal.file import JournalFile, begun, check
from headway.live.clock import WallClock, date
from headway.live.inbox import LiveInbox
from headway.models import EMBEDDED, display_name
from headway.server.engine.cost_file import cost_warnings, step_cost
from headway.server.engine.device_work import device_work
from headway.server.engine.messages import EngineOptions, Failed, Progress, Step, Welcome
from headway.server.engine.own_process import set_up
from headway.server.heap import ScoreTrimmer
from headway.text.tokenizer import Tokenizer
from headway.vectors.model_card import read_card

SMALL = 64 << 20  # bytes of weights; one thread runs a smaller model as fast as several do
PREPARING = 20.0  # the most seconds for preparing steps, before the server is ready
UNMARKED = str.maketrans("", "", "-:")  # makes a date fit for a file's name


class CountingInbox(LiveInbox):
    """Counts the requests that the engine has taken in, and compiles their grammars first.

    Grammars are compiled in the reader's thread. No step waits for that, but later commands do.
    """

    taken = 0
    compile: Callable[[Grammar], object] | None = None  # the executor's, once it is loaded

    def put(self, commands: Iterable[Command]) -> None:
        listed = list(commands)
        for each in listed:
            if isinstance(each, Add) and (grammar := each.request.sampling.grammar):
                assert self.compile, "nothing is sent to an engine that is not ready"
                with suppress(Exception):  # the step that needs the grammar reports the error
                    self.compile(grammar)
        super().put(listed)

    def poll(self) -> list[Command]:
        commands = super().poll()
        self.taken += sum([isinstance(command, Add) for command in commands])
        return commands


def run(options: EngineOptions, channel: Connection, words: Connection | None = None) -> None:
    """The process's main function. It returns once it was told to close and all requests are done;
    if the server is gone, the process exits. words: the pipe for its output."""
    set_up(channel, words)
    inbox = CountingInbox(WallClock())
    threading.Thread(target=_listen, args=(channel, inbox), daemon=True).start()
    process = EngineProcess(options, channel, inbox)
    try:
        process.serve()
    except HeadwayError as error:
        channel.send(Failed(error))
    except BaseException as error:  # the process's edge: tell the server, and stderr
        channel.send(Failed(EngineDownError(f"the engine is down: {first_line(error)}")))
        raise
    finally:
        process.close()


def _listen(channel: Connection, inbox: LiveInbox) -> None:
    try:
        while True:
            inbox.put(channel.recv())
    except (EOFError, OSError):
        os._exit(0)  # the server is gone: no client is left to answer


def _end_process(cause: str) -> None:
    """End the process when the executor has failed between steps, so that the server notices."""
    logging.getLogger("headway.engine").critical("%s: the engine ends", cause)
    os._exit(1)


def _set_threads(asked: int, weights: int, engines: int) -> None:
    """Set the number of compute threads. asked: what the user asked for. 0: one if the weights are
    small, which leaves the server a core; else, with several engines, an equal part of the cores,
    since threads that synchronize wait long when other threads hold their cores."""
    from headway.executor.torch.threads import set_thread_count

    threads = asked or int(weights < SMALL)
    if not threads and engines > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // engines)
    if threads:
        set_thread_count(threads)


def _threads_of(loaded: Loaded) -> int:
    if loaded.threads:
        return loaded.threads
    from headway.executor.torch.threads import thread_count

    return thread_count()


class EngineProcess:
    """Makes the engine from its options and runs it to its last step."""

    def __init__(self, options: EngineOptions, channel: Connection, inbox: CountingInbox) -> None:
        self.options, self.channel, self.inbox = options, channel, inbox
        self._began = inbox.clock.now()
        self._journal: JournalFile | None = None
        self._closing = ExitStack()  # closes in reverse order, and all of them even if one raises
        self._unkept = ""  # why there is no journal, although one was asked for

    def serve(self) -> None:
        """Make the engine, report that it is ready, and step until the scheduler has finished."""
        engine, welcome = self._make()
        gc.collect()
        gc.freeze()  # these objects stay alive, and scanning them again would delay a step
        self.channel.send(welcome)
        scheduler, inbox, send = engine.scheduler, self.inbox, self.channel.send
        left = ScoreTrimmer()
        while not scheduler.finished:
            events = engine.step()
            fault = self._journal.fault if self._journal else self._unkept
            load = engine.load
            rows, changes = scheduler.ledger.take(), scheduler.ledger.take_changes()
            stages = scheduler.accounts.take()
            send(Step(events, *rows, load, inbox.taken, fault, changes, stages))
            left.after(events, load.running)

    def close(self) -> None:
        """Close the journal and the executor, if they were created. Without this, a process whose
        executor has workers would wait for them when it exits."""
        self._closing.close()

    def _make(self) -> tuple[Engine, Welcome]:
        options = self.options
        if options.journal:
            check(Path(options.journal), new=False)
        source = self._found()
        self.channel.send(Progress(f"starting {options.executor}"))
        name = display_name(options.model)
        calibration = read_cost_file(Path(options.cost)) if options.cost else None
        if calibration:
            calibration.check_model(name, executor=options.executor)  # before the weights load
        self.channel.send(Progress(f"loading the weights of {name}"))
        with tokenizer_beside(options.executor, source) as reading:
            loaded = self._load(source)
        read = reading.of(loaded.folder) if reading else None
        loaded.executor.on_failure(_end_process)
        policies = self._policies(loaded)
        cost = step_cost(calibration, name, loaded)
        plan = loaded.plan
        if loaded.threads == 0:
            _set_threads(options.threads, plan.weights, options.engines)
        self.channel.send(Progress("preparing steps of every size"))
        loaded.executor.prepare(policies.step_tokens, options.slots, PREPARING)
        self.inbox.compile = loaded.executor.compile
        with suppress(SettingError, TokenizerError):  # a request with a grammar is told why
            loaded.executor.compile(Grammar("json_object"))  # this reads the tokenizer
        settings = settings_of(loaded, options.lanes, policies, cost)
        if options.journal:
            self._begin(settings, {"model": name, "dtype": loaded.dtype, "device": loaded.device})
        engine = self._engine(settings, loaded.executor)
        return engine, Welcome(
            model=name,
            folder=str(loaded.folder),
            tokenizer=Tokenizer(loaded.folder, loaded.vocab, read),
            dtype=loaded.dtype,
            device=loaded.device,
            capacity=engine.load.capacity,
            num_blocks=plan.num_blocks,
            block_size=plan.block_size,
            context=plan.context,
            eos=loaded.eos,
            memory=plan.summary,
            load=engine.load,
            traits=loaded.executor.traits,
            card=read_card(loaded.folder),
            work=device_work(loaded, calibration),
            load_ns=self.inbox.clock.now() - self._began,
            cost_warnings=cost_warnings(
                calibration, loaded.device, _threads_of(loaded), options.slots
            ),
        )

    def _policies(self, loaded: Loaded) -> Policies:
        """The policies, with whole prompts instead of chunks if the executor cannot split them."""
        policies = self.options.policies
        if loaded.executor.traits.splits_prompts or policies.chunk == Whole():
            return policies
        self.channel.send(Progress("an encoder computes prompts whole: chunk does not apply"))
        return replace(policies, chunk=Whole())

    def _load(self, source: Path) -> Loaded:
        from headway.executor.torch.memory.memory_plan import Limits

        options = self.options
        sizes = options.slots, options.context, options.block_size, options.memory
        limits = Limits.of(options.policies, *sizes)
        loaded = load(
            options.executor,
            source,
            limits,
            options.dtype,
            options.device,
            options.vllm,
            options.adapters,
        )
        self._closing.callback(loaded.executor.close)
        return loaded

    def _engine(self, settings: Settings, executor: Executor) -> Engine:
        scheduler = Scheduler(settings, token_bytes(16))
        scheduler.accounts = Accounts(scheduler.roster)
        keep = self._journal.keep if self._journal else forgotten
        return Engine(scheduler, GuardedExecutor(executor), self.inbox, self.inbox.clock, keep)

    def _found(self) -> Path:
        """The model's folder. A missing model is reported before torch is loaded."""
        source = self.options.model or EMBEDDED
        if local_folder(source) is None:
            self.channel.send(Progress(f"looking for {source} on the hub"))
        return locate(source)

    def _begin(self, settings: Settings, about: dict[str, str]) -> None:
        """Begin the journal. If that fails, as on a full disk, the engine runs without one: a
        journal must not keep a restarting server down."""
        path, now = Path(self.options.journal), date()
        stamp, size = now.translate(UNMARKED), self.options.journal_bytes
        try:
            about = {**about, "executor": self.options.executor, "begun": now}
            self._journal = begun(path, stamp, settings, about, size)
            self._closing.callback(self._journal.close)
            self.channel.send(Progress(f"keeping a journal in {self._journal.name}"))
        except JournalError as error:
            self._unkept = str(error)
            logging.getLogger("headway.journal").error("%s. The engine goes on without", error)
