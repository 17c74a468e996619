"""Sends requests to a server at their scheduled times, however many are unanswered (ClientRun).

The loop is open: a slow server delays no arrival, so it hides no wait (coordinated omission).
"""

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headway.core.lane import Lane
from headway.core.ledger import RequestRow
from headway.core.request import NEVER
from headway.live.clock import WallClock
from headway.runs.outcome import Outcome
from headway.runs.remote.answer_rows import Seen, rows_of
from headway.runs.remote.caller import Caller
from headway.runs.remote.client_row import ClientRow
from headway.runs.remote.connections import Connections
from headway.runs.remote.offer import Offer
from headway.runs.remote.wording import Wording
from headway.runs.run import Progress

LEAD = 50_000_000  # nanoseconds between the start and the first scheduled arrival
TICK = 0.02  # seconds between two checks of how late the client is

Tasks = set[asyncio.Task[None]]


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """How busy the client itself was. If it is the bottleneck, its times are too long."""

    cores: float  # processor cores that it used: about one at most
    stalls: tuple[int, ...]  # nanoseconds by which its clock ticks came late
    ran_out: int = 0  # when a closed loop ran out of requests before its end; 0: it did not


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run is carried out."""

    drain: int  # nanoseconds after the window, when unfinished requests are cut off
    window: int  # nanoseconds in which all requests arrive
    retries: int = 0
    callers: int = 0  # of a closed loop: each asks again once answered; 0: open loop
    seed: int = 0


class ClientRun:
    """One server under one workload, once. An interrupted run has an outcome too."""

    def __init__(
        self, wording: Wording, offers: Sequence[Offer], lanes: Sequence[Lane], manner: Manner
    ) -> None:
        """offers: in order of arrival."""
        self.wording, self.offers, self.manner = wording, offers, manner
        self.budgets = {lane.name: lane.budget for lane in lanes}
        self.clock, self.began = WallClock(), 0
        self.rows: list[RequestRow] = []
        self.client: list[ClientRow] = []
        self.stalls: list[int] = []
        self.load = ClientLoad(0.0, ())
        self._asked = Counter[str]()
        self._begun = 0  # offers sent in an open loop
        self._ran_out = 0
        self._last = 0  # when the last uncut request ended, or the last text of a cut one came
        self._spent = 0  # nanoseconds until the run ended or was interrupted
        self._is_over = False

    def serve(self, watch: Callable[[Progress], object] = lambda progress: None) -> Outcome:
        """Offer all requests, and wait for them to end. watch: called about every TICK seconds."""
        with without_collection():
            asyncio.run(self._serve(watch))
        return self.outcome()

    async def _serve(self, watch: Callable[[Progress], object]) -> None:
        connections = Connections(self.wording.target)
        caller = Caller(connections, self.manner.retries, self.manner.seed)
        self.began = self.clock.now() + LEAD
        used, ticking = _processor_seconds(), asyncio.create_task(self._tick(watch))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = await (self._closed if self.manner.callers else self._open)(caller, group)
                await self._drain(caller, tasks)
            self._is_over = True
        finally:
            ticking.cancel()
            connections.close()
            await asyncio.sleep(0)  # the sockets are closed in the loop's next turn
            self._spent = self.clock.now() - self.began
            cores = (_processor_seconds() - used) * 1e9 / (self._spent + LEAD)
            self.load = ClientLoad(cores, tuple(self.stalls), self._ran_out)

    async def _open(self, caller: Caller, group: asyncio.TaskGroup) -> Tasks:
        tasks: Tasks = set()
        for offer in self.offers:
            request, due = self._request(offer), self.began + offer.request.arrived
            await asyncio.sleep(max(0, due - self.clock.now()) / 1e9)
            self._begun += 1
            task = group.create_task(self._session(caller, offer, request, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return tasks

    async def _closed(self, caller: Caller, group: asyncio.TaskGroup) -> Tasks:
        offers, end = iter(self.offers), self.began + self.manner.window

        async def ask_on() -> None:
            for offer in offers:
                if (now := self.clock.now()) >= end:
                    return
                await self._session(caller, offer, self._request(offer), now)
            if (now := self.clock.now()) < end:
                self._ran_out = self._ran_out or now - self.began

        await asyncio.sleep(LEAD / 1e9)
        return {group.create_task(ask_on()) for _ in range(self.manner.callers)}

    def _request(self, offer: Offer) -> bytes:
        request = offer.request
        return self.wording.request(request.prompt, request.max_tokens, offer.headers)

    async def _session(self, caller: Caller, offer: Offer, request: bytes, due: int) -> None:
        """Send a request and the turns that follow it, each some time after the answer before it.

        A session ends if the window is over, if an answer is not whole, or if the conversation no
        longer fits into the context.
        """
        tokens, before = self.wording.prompt_tokens(offer.request.prompt), list[str]()
        turns = offer.turns
        seen, said = await self._one(caller, offer, request, due, tokens)
        for at, turn in enumerate(turns):
            stream, due = seen.exchange.stream, seen.ended + turn.think
            prompt, answer = turn.request.prompt, turn.request.max_tokens
            tokens = said + self.wording.prompt_tokens(prompt)
            full = tokens + answer > (self.wording.room or NEVER)
            ends = seen.left or seen.cut or not seen.is_whole
            if ends or full or due >= self.began + self.manner.window:
                return
            before += [self.wording.text_of(offer.request.prompt), stream.text]
            request = self.wording.request(prompt, answer, offer.headers, before)
            await asyncio.sleep(max(0, due - self.clock.now()) / 1e9)
            offer = replace(offer, request=turn.request, turns=turns[at + 1 :])
            seen, said = await self._one(caller, offer, request, due, tokens)

    async def _one(
        self, caller: Caller, offer: Offer, request: bytes, due: int, tokens: int
    ) -> tuple[Seen, int]:
        """Send one request. Returns what was seen, and the tokens of prompt and answer together.

        tokens: an estimate of the prompt's tokens, with the conversation before it.
        """
        self._asked[offer.request.lane] += 1
        seen = await caller.ask(offer, request, due)
        budget = self.budgets[offer.request.lane]
        row, client = rows_of(offer, seen, budget, self.began, tokens)
        self.rows.append(row)
        self.client.append(client)
        end = row.last_token if seen.cut and not seen.is_whole else row.finished
        if end != NEVER:
            self._last = max(self._last, end)
        return seen, row.prompt + row.generated

    async def _drain(self, caller: Caller, tasks: Tasks) -> None:
        """Wait for the running requests until the drain is over, then cut off the rest."""
        end = self.began + self.manner.window + self.manner.drain
        if tasks:
            await asyncio.wait(tasks, timeout=max(0, end - self.clock.now()) / 1e9)
        caller.is_over = True
        for task in tasks:
            task.cancel()

    async def _tick(self, watch: Callable[[Progress], object]) -> None:
        before = self.clock.now()
        while True:
            await asyncio.sleep(TICK)
            now = self.clock.now()
            self.stalls.append(max(0, now - before - round(TICK * 1e9)))
            before = now
            under_way = self._asked.total() - len(self.rows)
            watch(Progress(now - self.began, len(self.rows), 0, under_way))

    @property
    def _least(self) -> int:
        """The least nanoseconds to count, even if nothing came in them: the window, or the part of
        it that the run reached."""
        window = self.manner.window
        if self._is_over and not self._ran_out:
            return window
        return max(0, min(window, self._spent))

    def outcome(self) -> Outcome:
        """The rows of the run so far, by scheduled arrival, with the counts of offered requests."""
        both = zip(self.rows, self.client, strict=True)
        ordered = sorted(both, key=lambda pair: (pair[0].arrived, pair[0].id))
        counts = self._asked.copy()
        if not self.manner.callers:  # offers not yet sent when the run was interrupted
            counts += Counter(offer.request.lane for offer in self.offers[self._begun :])
        return Outcome(
            offered={name: counts[name] for name in self.budgets},
            requests=tuple(row for row, _ in ordered),
            steps=(),
            nanoseconds=max(self._last, self._least),
            complete=self._is_over,
            client=tuple(row for _, row in ordered),
        )


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch off the cycle collector: a scan of a million objects takes tens of milliseconds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _processor_seconds() -> float:
    used = os.times()
    return used.user + used.system
