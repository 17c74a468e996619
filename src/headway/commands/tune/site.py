"""What every candidate shares (Site), and the server's settings for one candidate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.commands.tune.candidate import DYNAMIC, LENGTH_CLASSES, Candidate
from headway.core.lane import ALL, Lane, Share
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.errors import SettingError
from headway.executor.load import TORCH
from headway.executor.precision import read_precision
from headway.server.config.config import ServerConfig
from headway.server.config.durations import Between, format_duration, format_window
from headway.server.config.ignored import check_most, check_set, is_read
from headway.server.config.sections.strategy import NAMED, StrategySettings
from headway.server.config.sources import Layers, read_file
from headway.strategies.window import Window

MICROSECOND = 1_000  # budgets are written in whole ones, rounded up
LIMITS = ("ttft", "tpot", "e2e", "queue")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a candidate's engine is built from. It can be pickled."""

    policies: Policies
    lanes: tuple[Lane, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class Site:
    """The model, the lanes with their budgets, and the cost file."""

    lanes: tuple[Lane, ...]
    windows: dict[str, Window]  # set by the user, by lane
    bounds: tuple[int, ...]  # of the length classes, in tokens
    context: int  # tokens
    block_size: int  # tokens
    cost: str  # path of the cost file
    model: str  # a folder or hub id; empty: the embedded one
    dtype: str = ""  # the cost file was measured in it; empty: as stored
    executor: str = TORCH  # the cost file was measured on it
    threads: int = 0  # that compute, as the cost file was measured; 0: a server's own choice

    def open_lanes(self, candidate: Candidate) -> list[str]:
        """The lanes whose windows (groups) or slots (else) the user has left open. A single lane
        shares with no other, so it has none."""
        if len(self.lanes) < 2:
            return []
        if candidate.is_group:
            return [lane.name for lane in self.lanes if self._is_window_open(lane)]
        return [lane.name for lane in self.lanes if lane.slots == ALL]

    def plain(self, candidate: Candidate) -> dict[str, Any]:
        """The configuration of a server with these settings, as in its YAML file."""
        parts = self._parts(candidate)
        strategy = StrategySettings.model_validate(parts)
        engine: dict[str, Any] = {"slots": candidate.slots}
        if candidate.step_tokens:
            engine["step_tokens"] = candidate.slots + candidate.step_tokens
        engine |= {"strategy": parts, "context": self.context, "block_size": self.block_size}
        engine["cost"] = self.cost
        if self.executor != TORCH:
            engine["executor"] = self.executor
        if self.threads:
            engine["threads"] = self.threads
        tokens = engine.get("step_tokens") or strategy.default_step_tokens(candidate.slots)
        whole = tokens if strategy.effective_chunk else NEVER  # whole prompts may exceed it
        lanes = {
            lane.name: self._lane(_fitted(lane, candidate.slots, whole), candidate, strategy)
            for lane in self.lanes
        }
        precision = read_precision(self.dtype)
        model = {"path": self.model, "dtype": precision.dtype, "quantize": precision.quantize}
        said = {name: value for name, value in model.items() if value}
        models = {"models": [said]} if said else {}
        return {**models, "engine": engine, "lanes": lanes}

    def config(self, candidate: Candidate) -> ServerConfig:
        """The server's configuration. Raises SettingError where a server would refuse it."""
        return _checked(self.plain(candidate), "the lanes")

    def setup(self, candidate: Candidate) -> Setup:
        """What the engine is built from. Raises SettingError where a server would refuse it."""
        config = self.config(candidate)
        return Setup(config.policies, config.core_lanes, candidate.slots)

    def allows(self, candidate: Candidate) -> bool:
        """Whether a server accepts these settings with these lanes.

        Length classes have one window for all lanes, so they are not allowed if the user has set
        the window of a lane.
        """
        if candidate.strategy == LENGTH_CLASSES and self.windows:
            return False
        try:
            self.config(candidate)
        except SettingError:
            return False
        return True

    def reduced(self, candidate: Candidate) -> Candidate:
        """The candidate, without its window if no lane reads it: all sizes would do the same."""
        if candidate.strategy == LENGTH_CLASSES:
            has_reader = any(lane.budget.ttft != NEVER for lane in self.lanes)
        else:
            has_reader = any(map(self._is_window_open, self.lanes))
        return candidate if has_reader else replace(candidate, window=0)

    def unused_windows(self, candidate: Candidate) -> tuple[str, ...]:
        """A warning about the user's windows if this candidate does not use them, else empty."""
        if candidate.is_group or not self.windows:
            return ()
        many = len(self.windows) > 1
        said = f"The {'windows' if many else 'window'} of {', '.join(self.windows)}"
        end = f"not used: {candidate.strategy} holds no groups."
        return (f"{said} {'are' if many else 'is'} {end}",)

    def _is_window_open(self, lane: Lane) -> bool:
        """Whether dynamic lanes would derive this lane's window from its budget."""
        return lane.name not in self.windows and _limit(lane) != NEVER

    def _parts(self, candidate: Candidate) -> dict[str, Any]:
        if candidate.strategy == LENGTH_CLASSES:
            parts = {"join": LENGTH_CLASSES, "order": "first-come", "bounds": list(self.bounds)}
            tightest = min(lane.budget.ttft for lane in self.lanes)
            least = min(map(_shortest, self.lanes))
            window = 0 if tightest == NEVER else _part(least, candidate.window)
            return {**parts, "window": format_duration(window)}
        parts = dict(NAMED[candidate.strategy])
        return parts | ({"chunk": candidate.chunk} if candidate.chunk else {})

    def _lane(self, lane: Lane, candidate: Candidate, strategy: StrategySettings) -> dict[str, Any]:
        """A lane as in the YAML file."""
        plain: dict[str, Any] = {
            name: format_duration(_rounded(limit))
            for name in LIMITS
            if (limit := getattr(lane.budget, name)) != NEVER
        }
        if is_read("priority", (strategy,)):
            plain["priority"] = lane.priority
        if lane.max_waiting != Lane().max_waiting:
            plain["max_waiting"] = lane.max_waiting
        if lane.max_waiting_tokens != NEVER:
            plain["max_waiting_tokens"] = lane.max_waiting_tokens
        for name in ("slots", "blocks", "step_tokens"):
            if (share := getattr(lane, name)) != ALL:
                plain[name] = _share(share)
        if share := _slots(lane.name, candidate):
            plain["slots"] = share
        if lane.chunk != NEVER:
            plain["chunk"] = lane.chunk
        if candidate.strategy == DYNAMIC and (window := self._window(lane, candidate)) != Window():
            plain["window"] = _window(window)
        return plain

    def _window(self, lane: Lane, candidate: Candidate) -> Window:
        limit = _limit(lane)
        percent = dict(candidate.windows).get(lane.name, candidate.window)
        default = NEVER if limit == NEVER else _part(_shortest(lane), percent)
        return self.windows.get(lane.name, Window(default))


def read_back(path: Path) -> ServerConfig:
    """Read a written file and check it as the server does, without the environment's settings."""
    return _checked(read_file(path), path.name)


def prompt_bounds(prompts: Sequence[int]) -> tuple[int, ...]:
    """The bounds of three length classes with equally many prompts. prompts: tokens, ascending."""
    return tuple(sorted({prompts[len(prompts) * k // 3] for k in (1, 2)}))


def _limit(lane: Lane) -> int:
    """The limit that makes a lane's window worth a search. NEVER: the lane has none."""
    return min(lane.budget.ttft, lane.budget.e2e)


def _shortest(lane: Lane) -> int:
    """The least limit of a lane, which a window must not use up. NEVER: the lane has none."""
    return min(_limit(lane), lane.budget.queue)


def _checked(plain: dict[str, Any], name: str) -> ServerConfig:
    layers = Layers()
    layers.add(plain, lambda where: name)
    config = layers.build(ServerConfig)
    functions = bool(config.functions)
    check_set(config.lanes, config.strategies, layers.origins, functions=functions)
    check_most(config.lanes, [config.policies], layers.origins)
    return config


def _slots(lane: str, candidate: Candidate) -> dict[str, int]:
    parts = {"least": dict(candidate.least).get(lane, 0), "most": dict(candidate.most).get(lane, 0)}
    return {name: max(1, candidate.slots * part // 100) for name, part in parts.items() if part}


def _window(window: Window) -> Any:
    return format_window(Between(window.low, window.high) if window.follows else window.high)


def _fitted(lane: Lane, slots: int, step_tokens: int) -> Lane:
    """The lane with its shares cut to the whole: a server refuses a larger `most`."""
    return replace(
        lane,
        slots=_within(lane.slots, slots),
        step_tokens=_within(lane.step_tokens, step_tokens),
    )


def _within(share: Share, whole: int) -> Share:
    most = share.most if share.most == NEVER else min(share.most, whole)
    return replace(share, most=most, low=min(share.low, whole))


def _share(share: Share) -> dict[str, Any]:
    plain: dict[str, Any] = {"least": share.least} if share.least else {}
    if share.follows:
        return {**plain, "between": [share.low, share.most]}
    return plain | ({"most": share.most} if share.most != NEVER else {})


def _rounded(limit: int) -> int:
    return -(-limit // MICROSECOND) * MICROSECOND


def _part(limit: int, percent: int) -> int:
    return _rounded(limit * percent // 100)
