"""`engine.strategy`: a batching strategy by name, as in `headway compare`, or by its parts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.defer import DEFERS
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses
from headway.core.policies.memory import FILLER_AHEAD, Ahead, Memory, Now
from headway.core.policies.mix import MIXES
from headway.core.policies.order import ORDERS
from headway.core.policies.policies import CHUNK, Policies
from headway.core.policies.preempt import ByLane, Youngest
from headway.core.policies.relegate import Hopeless, Keep
from headway.core.request import NEVER
from headway.errors import SettingError, did_you_mean
from headway.server.config.durations import SECOND, Between, Window, longest
from headway.server.config.sections.lanes import LaneSettings
from headway.server.config.sections.section import Count, Section

NAMED: dict[str, dict[str, Any]] = {
    "priority": {},
    "first-come": {"order": "first-come"},
    "shortest-first": {"order": "shortest-first"},
    "continuous-mixed": {"order": "first-come", "chunk": "whole"},
    "continuous-prefill-first": {"order": "first-come", "mix": "prefill-first"},
    "continuous-alternate": {"order": "first-come", "mix": "alternate"},
    "dynamic-lanes": {"join": "dynamic", "order": "first-come"},
    "deadline-order": {"order": "deadline"},
    "slack-steps": {"order": "first-come", "chunk": "slack"},
    "relegation": {"order": "first-come", "relegate": "hopeless"},
    "filler": {"preempt": "by-lane", "defer": "without-deadline"},
    "budgets": {
        "order": "deadline",
        "chunk": "slack",
        "preempt": "by-lane",
        "defer": "time-to-spare",
        "relegate": "hopeless",
        "memory": "filler-ahead",
    },
    "memory-ahead": {"order": "first-come", "memory": "ahead"},
    "fair": {"order": "first-come", "fair": True},
}
CHUNKED = "continuous-chunk-"  # a prefix, followed by a number of tokens
STEP = 2_048  # tokens of a step with whole prompts; the last prompt may exceed it
LONG_STEP = 2_048  # most prompt tokens of a step that is sized by slack
MEMORIES: dict[str, Memory] = {"now": Now(), "ahead": Ahead(), "filler-ahead": FILLER_AHEAD}
WHOLE, SLACK = "whole", "slack"
BY_SLACK = -1  # stands for a chunk sized by slack, in place of a number of tokens


def parts_of(name: str) -> dict[str, Any]:
    """The parts that a strategy's name stands for. Raises SettingError for an unknown name."""
    if name in NAMED:
        return NAMED[name]
    size = name.removeprefix(CHUNKED)
    if size != name and size.isdecimal():
        return {"order": "first-come", "chunk": int(size)}
    if name.startswith("static"):
        raise SettingError(
            f"{name} waits until its group is full, but a server never knows whether more will "
            "come: use dynamic-lanes"
        )
    raise SettingError(
        f"there is no strategy {name!r}{did_you_mean(name, [*NAMED, f'{CHUNKED}256'])}"
    )


def _chunk(value: Any) -> int | None:
    """Parse a chunk: tokens; 0: whole prompts; BY_SLACK; None: a default for the other parts."""
    if value is None or value in (WHOLE, SLACK):
        return None if value is None else 0 if value == WHOLE else BY_SLACK
    size = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise SettingError(f"a chunk is {WHOLE}, {SLACK} or 1 token or more, not {value!r}")
    return size


Chunked = Annotated[
    int | None,
    BeforeValidator(_chunk),
    PlainSerializer(lambda size: {0: WHOLE, BY_SLACK: SLACK}.get(size, size)),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": [WHOLE, SLACK, None]}]}),
]


class StrategySettings(Section):
    """The parts of a strategy; the defaults are those of `priority`."""

    join: Annotated[
        Literal["continuous", "dynamic", "length-classes"],
        Field(description="When waiting requests may start; each kind has engine.slots places."),
    ] = "continuous"
    order: Annotated[
        Literal["first-come", "priority", "shortest-first", "deadline"],
        Field(description="Which waiting request goes first. deadline needs engine.cost."),
    ] = "priority"
    mix: Annotated[
        Literal["mixed", "prefill-first", "alternate"] | None,
        Field(
            description="Whether prompts and decoding share steps. Default: mixed if "
            "continuous, else prefill-first."
        ),
    ] = None
    chunk: Annotated[
        Chunked,
        Field(
            description="Prompt tokens per step, whole, or slack: as many as the running answers "
            "have time for, which needs engine.cost. Default: 256 if continuous and mixed, else "
            "whole."
        ),
    ] = None
    preempt: Annotated[
        Literal["youngest", "by-lane"],
        Field(
            description="Which running requests give up their blocks: the youngest; or those of "
            "lanes without a budget first, which then give up their slots, too."
        ),
    ] = "youngest"
    defer: Annotated[
        Literal["nobody", "without-deadline", "time-to-spare"],
        Field(
            description="Which running requests may get their next token in a later step: those of "
            "lanes without a budget; and those whose next token is not due soon, which needs "
            "engine.cost."
        ),
    ] = "nobody"
    relegate: Annotated[
        Literal["keep", "hopeless"],
        Field(
            description="Whether requests whose first token cannot come in time any more keep "
            "their places. hopeless: they do not; it needs engine.cost."
        ),
    ] = "keep"
    memory: Annotated[
        Literal["now", "ahead", "filler-ahead"],
        Field(
            description="Whether a request starts if memory suffices now, or later on too, by the "
            "lengths of answers seen so far. filler-ahead: those of lanes with a budget start now, "
            "unless they are relegated."
        ),
    ] = "now"
    fair: Annotated[
        bool | None,
        Field(
            description="Whether tenants share the places of each lane, by the weights of their "
            "keys. Default: yes if there are several tenants."
        ),
    ] = None
    window: Annotated[
        Window,
        Field(
            description="Window of lanes that set none: a time, or between two, by the load. Only "
            "with dynamic and length-classes, which has a time."
        ),
    ] = NEVER
    buckets: Annotated[
        tuple[Count, ...],
        Field(description="Widths in tokens that dynamic groups are padded to, ascending."),
    ] = ()
    bounds: Annotated[
        tuple[Count, ...],
        Field(
            description="Longest prompt, in tokens, of each length class but the last, ascending."
        ),
    ] = ()
    pad_to_bound: Annotated[
        bool,
        Field(
            description="Whether groups of a length class are padded up to its bound: few shapes. "
            "Default: to the longest of the group."
        ),
    ] = False

    def check(self) -> None:
        for name, is_set, joins in (
            ("window", self.window != NEVER, ("dynamic", "length-classes")),
            ("buckets", self.buckets, ("dynamic",)),
            ("bounds", self.bounds, ("length-classes",)),
            ("pad_to_bound", self.pad_to_bound, ("length-classes",)),
        ):
            if is_set and self.join not in joins:
                raise SettingError(f"{name} is for join {' or '.join(joins)}, not {self.join}")
        if self.join == "length-classes" and isinstance(self.window, Between):
            raise SettingError("the window of length-classes is one time: it follows no load")
        if self.join == "length-classes" and not self.bounds:
            raise SettingError("length-classes needs bounds, such as [128, 512]")
        if self.by_budgets and (self.join != "continuous" or self.effective_mix != "mixed"):
            raise SettingError(
                f"{self.by_budgets[0]} is for join continuous and mix mixed, not {self.join} and "
                f"{self.effective_mix}"
            )

    @property
    def by_budgets(self) -> list[str]:
        """The strategy's parts that depend on the lanes' budgets or on predictions."""
        parts = (
            ("order deadline", self.order == "deadline"),
            (f"chunk {SLACK}", self.chunk == BY_SLACK),
            (f"preempt {self.preempt}", self.preempt != "youngest"),
            (f"defer {self.defer}", self.defer != "nobody"),
            (f"relegate {self.relegate}", self.relegate != "keep"),
            (f"memory {self.memory}", self.memory != "now"),
        )
        return [name for name, holds in parts if holds]

    @property
    def effective_mix(self) -> str:
        return self.mix or ("mixed" if self.join == "continuous" else "prefill-first")

    @property
    def effective_chunk(self) -> int:
        """The chunk in force: tokens; 0: whole prompts; or BY_SLACK."""
        if self.chunk is None:
            return CHUNK if self.join == "continuous" and self.effective_mix == "mixed" else 0
        return self.chunk

    def policies(self, slots: int, step_tokens: int, lanes: Mapping[str, LaneSettings]) -> Policies:
        """The scheduler's policies. step_tokens: 0 means default_step_tokens."""
        return Policies(
            join=self._join(slots, lanes),
            order=ByDeadline() if self.order == "deadline" else ORDERS[self.order],
            mix=MIXES[self.effective_mix],
            chunk=self._chunk,
            preempt=ByLane() if self.preempt == "by-lane" else Youngest(),
            defer=DEFERS[self.defer],
            relegate=Hopeless() if self.relegate == "hopeless" else Keep(),
            memory=MEMORIES[self.memory],
            step_tokens=step_tokens or self.default_step_tokens(slots),
        )

    @property
    def _chunk(self) -> Chunk:
        match self.effective_chunk:
            case 0:
                return Whole()
            case size if size == BY_SLACK:
                return BySlack()
            case size:
                return Fixed(size)

    def default_step_tokens(self, slots: int) -> int:
        """Tokens for one chunk and for the next token of every slot. A chunk by slack counts as
        LONG_STEP; with whole prompts it is STEP, or the slots if there are more."""
        if self.effective_chunk == BY_SLACK:
            return slots + LONG_STEP
        return slots + self.effective_chunk if self.effective_chunk else max(STEP, slots)

    def windows(self, lanes: Mapping[str, LaneSettings]) -> dict[str, int | Between]:
        """Each lane's window: its own, else the strategy's, else a default."""
        return {name: lane.window_in_force(self.window) for name, lane in lanes.items()}

    def _join(self, slots: int, lanes: Mapping[str, LaneSettings]) -> Join:
        if self.join == "continuous":
            return Continuous(slots)
        for name, window in self.windows(lanes).items():
            lanes[name].check_window(window, f"lane {name}: ")
        if self.join == "length-classes":
            window = min(map(longest, self.windows(lanes).values()))
            return LengthClasses(slots, self.bounds, window, self.pad_to_bound)
        return self._dynamic(slots, lanes)

    def _dynamic(self, slots: int, lanes: Mapping[str, LaneSettings]) -> Dynamic:
        """A strategy's window that follows the load is shared by all lanes that set none."""
        shared, windows, lows = SECOND, self.windows(lanes), dict[str, int]()
        if isinstance(self.window, Between):
            shared, lows[""] = self.window.high, self.window.low
            windows = {n: each for n, each in windows.items() if lanes[n].window != NEVER}
            if len(windows) == len(lanes):
                raise SettingError("each lane has a window of its own: none has the strategy's")
        lows |= {n: each.low for n, each in windows.items() if isinstance(each, Between)}
        highs = {name: longest(each) for name, each in windows.items()}
        return Dynamic(slots, shared, highs, self.buckets, lows=lows)


class _NameOrParts:
    """Adds to the JSON Schema that a name is valid too, which a validator cannot show."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "examples": list(NAMED)}, handler(core)]}


Named = BeforeValidator(lambda given: parts_of(given) if isinstance(given, str) else given)
Strategy = Annotated[StrategySettings | None, Named, _NameOrParts()]
BY_BUDGETS = StrategySettings.model_validate(NAMED["budgets"])
