"""One stream, in turns: the engines of a precision stay in memory, and answer one after the other.

The speed of the memory bounds one stream, and on a virtual machine it changes within a minute by
1.7 times. Processes that run one after the other measure that as much as the engines. So all
engines are loaded first, and a turn is one answer of each, a few seconds apart; each turn begins
with another engine. An engine that has no turn is stopped by SIGSTOP, so that no idle engine takes
a core.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.peers.contestants import Contestant, Stage, end, why_it_ended, written
from benchmarks.peers.drivers.job import READY
from benchmarks.peers.environments import MissingError
from benchmarks.peers.workloads import Workload
from headway.costing.machine import Neighbours

ENDING = 10.0  # seconds that a process has to end once it no longer prints


@dataclass(slots=True)
class Player:
    """A contestant's process."""

    contestant: Contestant
    process: "subprocess.Popen[str]"
    out: Path
    log: IO[str]
    limit: float  # seconds of loading, and of a turn
    late: bool = False

    def turn(self) -> bool:
        """One answer. False: the process has ended."""
        assert self.process.stdin is not None
        self.signal(signal.SIGCONT)
        with suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), b"\n")
            return self.is_ready()
        return False

    def is_ready(self) -> bool:
        """Wait until it is ready for a turn, and stop it. False: it has ended, or took too long."""
        assert self.process.stdout is not None
        timer = threading.Timer(self.limit, self._give_up)
        timer.start()
        try:
            ready = any(READY in line for line in self.process.stdout)
        finally:
            timer.cancel()
        if ready:
            self.signal(signal.SIGSTOP)
        return ready

    def why(self, ready: bool) -> str:
        """End it. Returns why it was not ready; empty: it was."""
        ended = None
        if not ready:
            with suppress(subprocess.TimeoutExpired):
                ended = self.process.wait(ENDING)
        end(self.process)
        if self.late:
            return f"it took more than {self.limit:.0f} s"
        self.log.seek(0)
        return "" if ready else why_it_ended(ended or 0, self.log.read()) or "it said nothing"

    def signal(self, number: signal.Signals) -> None:
        """Signal the process and the workers that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _give_up(self) -> None:
        self.late = True
        end(self.process)


def in_turns(stage: Stage, contestants: Sequence[Contestant], one: Workload, turns: int) -> None:
    """Add so many answers of each contestant to its runs. A contestant that fails is missing, or
    keeps the turns that it had."""
    others = Neighbours()
    with ExitStack() as leaving:
        players = list[Player]()
        for each in contestants:
            player = _loaded(stage, each, one, leaving)
            players += [player] if player else []
        for turn in range(turns):
            first = turn % max(1, len(players))
            for player in [*players[first:], *players[:first]]:
                if not player.turn():
                    players.remove(player)
                    _leave(player, ready=False)
            rates = [f"{each.contestant.name} {_rate(each):.4g}" for each in players]
            print(f"turn {turn}: {', '.join(rates)}", flush=True)
        # Before they are ended: no account has the time of a worker killed with its parent.
        share = others.cores() / (os.cpu_count() or 1)
        for player in players:
            _leave(player, ready=True)
    for each in contestants:
        for run in each.runs:
            run["others"] = share


def _loaded(stage: Stage, each: Contestant, one: Workload, leaving: ExitStack) -> Player | None:
    """Its process, ready for its first turn; `leaving` ends it whatever happens."""
    if each.missing:
        print(f"turns: {each.name} is not measured: {each.missing}", flush=True)
        return None
    out = stage.job(each, [one], 0, turns=True)
    log = leaving.enter_context(out.with_suffix(".log").open("w+"))
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
    process = leaving.enter_context(stage.start(each, out, **streams))
    leaving.callback(end, process)
    player = Player(each, process, out, log, stage.limit)
    if player.is_ready():
        return player
    each.missing = player.why(ready=False)
    print(f"turns: {each.name} failed: {each.missing}", flush=True)
    return None


def _rate(player: Player) -> float:
    """Tokens a second of its last turn."""
    last = written(player.out, "")["turns"][-1]
    return float(last["tokens"] / last["seconds"])


def _leave(player: Player, ready: bool) -> None:
    """End it, and keep its measurements."""
    each = player.contestant
    why = player.why(ready)
    try:
        each.runs.append(written(player.out, why))
    except MissingError as error:
        each.missing = str(error)
    if why:
        print(f"turns: {each.name} ended: {why}", flush=True)
