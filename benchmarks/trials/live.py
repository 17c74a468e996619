"""One trial on a running server: `headway serve`, its versions' API, and recorded traffic."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from math import exp
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from benchmarks.budgets.mixes import SECOND
from benchmarks.server_overhead.served import serving
from benchmarks.trials.late import Planted
from benchmarks.trials.paced import Machine, Tally
from benchmarks.trials.simulated import PLANTED
from benchmarks.trials.traffic import CHUNK, CONTEXT, LANES, SECONDS, SLOTS, window
from headway.commands.versions.client import VersionsError, ask
from headway.core.request import NEVER, Finish, Request
from headway.figures.percentile import percentile
from headway.rollout.evidence import MOST_LOG
from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Outcome
from headway.runs.remote.client_run import ClientRun, Manner
from headway.runs.remote.first_contact import Contact
from headway.runs.remote.offer import Offer
from headway.runs.remote.target import read_target
from headway.runs.remote.wording import Wording
from headway.server.config.durations import format_duration

COARSE, SLOW, PACE = 8, 2.0, 4.0  # Machine
CANDIDATE = 2  # the number of the version that is proposed
LOOK = 1.0  # seconds between two looks at the trial
PATIENCE = 60.0  # seconds for a trial to end after its time
MOST_LAG = 1.0  # times the slice: 99 % of the requests are sent with less delay
MOST_LOST = 0.1  # of the steps' time, that the device may lose because the machine is busy
LIMITS = "ttft", "tpot", "e2e"


@dataclass(slots=True)
class LiveTrial:
    """A trial, and what would make it void."""

    run: int
    lane: str  # in which something is planted; empty: A/A
    requests: int = 0
    failed: int = 0  # of them
    lag: float = 0.0  # seconds, the client's p99
    tally: Tally = field(default_factory=Tally)
    pairs: int = 0
    outcome: str = ""
    why: str = ""
    minutes: float = 0.0  # of the trace, until the verdict
    e_values: dict[str, float] = field(default_factory=dict)  # of each guardrail and lane

    @property
    def void(self) -> str:
        """Why the trial does not count; empty: it does."""
        if not self.outcome:
            return "it has not ended"
        if self.failed:
            return f"{self.failed} requests failed"
        if self.lag > (most := MOST_LAG * TrialPlan().slice / SECOND / PACE):
            return f"the client was late: p99 {1e3 * self.lag:.0f} ms, {1e3 * most:.0f} allowed"
        if self.lost > MOST_LOST:
            return f"the device lost {self.lost:.0%} of its time to other processes"
        return ""

    @property
    def lost(self) -> float:
        """The share of the device's time that was lost."""
        return self.tally.lost / (self.tally.priced or 1.0)

    @property
    def is_tripped(self) -> bool:
        return self.outcome == Outcome.TRIPPED

    def __str__(self) -> str:
        most = dict[str, float]()
        for name, value in self.e_values.items():
            figure = name.split()[0]
            most[figure] = max(most.get(figure, 0.0), value)
        told = ", ".join(f"{figure} {value:.3g}" for figure, value in most.items())
        return (
            f"run {self.run} {self.lane or 'A/A'}: {self.requests} requests, {self.pairs} pairs, "
            f"lag p99 {1e3 * self.lag:.0f} ms, {self.lost:.1%} of steps lost; {self.outcome} after "
            f"{self.minutes:.1f} min; largest e-values: {told}. {self.why}"
            + (f" VOID: {self.void}" if self.void else "")
        )


def scaled(nanoseconds: float, times: float = 1.0) -> str:
    """A time of the trace as a server's file has it."""
    return format_duration(round(nanoseconds * times / PACE))


def config(store: Path) -> dict[str, Any]:
    """The server's file. Lanes have their limits, as short as all times are."""
    lanes = dict[str, Any]()
    for lane in LANES:
        limits = {name: getattr(lane.budget, name) for name in LIMITS}
        made = {
            name: scaled(limit, COARSE if name == "tpot" else 1)
            for name, limit in limits.items()
            if limit != NEVER
        }
        lanes[lane.name] = {**made, "max_waiting": 100_000}
    strategy = {"join": "continuous", "order": "first-come", "chunk": CHUNK}
    engine = {"slots": SLOTS, "context": CONTEXT // COARSE, "strategy": strategy}
    return {"lanes": lanes, "engine": engine, "versions": {"store": str(store)}}


def proposal() -> dict[str, Any]:
    """A version with the default settings, so only its number changes."""
    return {"config": {"engine": {"step_tokens": SLOTS + CHUNK}}, "reason": "equal versions"}


def start(seed: int) -> dict[str, Any]:
    """The default plan, at this pace."""
    plan = TrialPlan(longest=SECONDS * SECOND)
    times = ("slice", "wash_out", "longest", "settle")
    return {"seed": seed, **{name: scaled(getattr(plan, name)) for name in times}}


def offers(run: int, folder: Path | None, wording: Wording) -> list[Offer]:
    """The window's requests, with prompts that share nothing."""
    random, made = Random(f"prompts {run}"), list[Offer]()
    for n, spec in enumerate(window(run, folder, SLOW).specs):
        prompt, answer = (max(1, round(each / COARSE)) for each in (spec.prompt, spec.answer))
        ids = tuple(random.choices(wording.text, k=min(prompt, CONTEXT // COARSE - answer)))
        at = int(spec.at / PACE)
        request = Request(f"{spec.lane}-{n}", ids, answer, at, spec.lane)
        made.append(Offer(request, {"x-headway-lane": spec.lane}))
    return made


class Looker:
    """Looks at the trial until it ends, from a thread of its own."""

    def __init__(self, url: str, made: LiveTrial) -> None:
        self.url, self.made = url, made
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self) -> None:
        end, known = monotonic() + SECONDS / PACE + PATIENCE, self.made.e_values
        while monotonic() < end:
            with suppress(VersionsError):  # the server is busy: look again
                if not (trial := ask(self.url, "")["trial"]):
                    return
                for each in trial["evidence"]:
                    place = f"{each['figure']} {each['lane']}"
                    e_value = exp(min(each["evidence"], MOST_LOG))
                    known[place] = max(known.get(place, 0.0), e_value)
            sleep(LOOK)


def live_trial(run: int, lane: str, folder: Path | None) -> LiveTrial:
    """From the server's start to its end."""
    made = LiveTrial(run, lane)
    with TemporaryDirectory() as name:
        here = Path(name)
        told = here / "tally.json"
        fault = Planted(lane, CANDIDATE, PLANTED) if lane else None
        machine = Machine(COARSE, SLOW, PACE, str(told), fault)
        command = (sys.executable, "-m", "benchmarks.trials.served", json.dumps(asdict(machine)))
        with serving(config(here / "versions.db"), here, log=here / "log", command=command) as on:
            url = f"http://{on.host}:{on.port}"
            wording = asyncio.run(Contact(read_target(url), {}).wording("", False, False))
            with suppress(VersionsError):  # then it has no outcome, and is void
                _offered(made, url, wording, offers(run, folder, wording))
                _read(made, ask(url, "", f"/{CANDIDATE}")["events"])
        made.tally = Tally(**json.loads(told.read_text()))
    return made


def _read(made: LiveTrial, events: Sequence[Mapping[str, Any]]) -> None:
    """What the server has kept of the trial."""
    *_, begun, ended = events
    if not (verdict := ended["details"].get("verdict")):
        return
    made.outcome, made.why, made.pairs = verdict["outcome"], verdict["why"], verdict["pairs"]
    made.minutes = (ended["at"] - begun["at"]) * PACE / 60
    for each in verdict["evidence"]:
        place = f"{each['figure']} {each['lane']}"
        made.e_values[place] = max(made.e_values.get(place, 0.0), each["e_value"])


def _offered(made: LiveTrial, url: str, wording: Wording, offered: Sequence[Offer]) -> None:
    """The traffic and the trial, side by side."""
    manner = Manner(round(PATIENCE * SECOND), round(SECONDS / PACE * SECOND))
    run = ClientRun(wording, offered, LANES, manner)
    ask(url, "", "", proposal())
    ask(url, "", f"/{CANDIDATE}/start", start(made.run))
    looker = Looker(url, made)
    outcome = run.serve()
    looker.thread.join()
    lag = percentile([row.lag for row in outcome.client], 99)
    made.lag = (lag or 0) / 1e9
    made.requests = len(outcome.requests)
    made.failed = sum(row.finish in (Finish.ERROR, Finish.REFUSED) for row in outcome.requests)


def live_trials(
    wanted: Sequence[tuple[int, str]], together: int, folder: Path | None
) -> Iterator[LiveTrial]:
    """As they end, several at once. A void one is made again with another run, as often as there
    are trials at most."""
    spare = count(1 + max(run for run, _ in wanted))
    with ProcessPoolExecutor(together) as pool:
        open = {pool.submit(live_trial, run, lane, folder) for run, lane in wanted}
        made = 0
        while open:
            done, open = wait(open, return_when=FIRST_COMPLETED)
            for each in done:
                trial = each.result()
                yield trial
                made += 1
                if trial.void and made <= len(wanted):
                    open.add(pool.submit(live_trial, next(spare), trial.lane, folder))
