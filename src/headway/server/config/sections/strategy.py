"""`engine.strategy`: a batching strategy by name, as in `headway compare`, or by its parts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_settings import NoDecode

from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses
from headway.core.policies.mix import MIXES
from headway.core.policies.order import ORDERS
from headway.core.policies.policies import CHUNK, Policies
from headway.core.request import NEVER
from headway.errors import SettingError, did_you_mean
from headway.server.config.sections.durations import SECOND, Duration
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
}
CHUNKED = "continuous-chunk-"  # followed by a number of tokens
STEP = 2_048  # tokens of a step of whole prompts; the last prompt may exceed it
WINDOW_SHARE = 0.25  # default window of a lane, as a share of its ttft
WHOLE = "whole"


def _expand_name(value: Any) -> Any:
    """Replace a name by the parts that it stands for."""
    if not isinstance(value, str):
        return value
    if value in NAMED:
        return NAMED[value]
    size = value.removeprefix(CHUNKED)
    if size != value and size.isdecimal():
        return {"order": "first-come", "chunk": int(size)}
    if value.startswith("static"):
        raise SettingError(
            f"{value} waits until its group is full, but a server never knows whether more will "
            "come: use dynamic-lanes"
        )
    raise SettingError(
        f"there is no strategy {value!r}{did_you_mean(value, [*NAMED, f'{CHUNKED}256'])}"
    )


def _chunk(value: Any) -> int | None:
    """Tokens; 0: whole prompts; None: whatever suits the other parts."""
    if value is None or value == WHOLE:
        return None if value is None else 0
    size = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise SettingError(f"a chunk is {WHOLE} or 1 token or more, not {value!r}")
    return size


Chunked = Annotated[
    int | None,
    BeforeValidator(_chunk),
    PlainSerializer(lambda size: WHOLE if size == 0 else size),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": [WHOLE, None]}]}),
]


class StrategySettings(Section):
    """The parts of a strategy; the defaults are those of `priority`."""

    join: Annotated[
        Literal["continuous", "dynamic", "length-classes"],
        Field(description="When waiting requests may start; each kind has engine.slots places."),
    ] = "continuous"
    order: Annotated[
        Literal["first-come", "priority", "shortest-first"],
        Field(description="Which waiting request goes first."),
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
            description="Prompt tokens per step, or whole. Default: 256 if continuous and "
            "mixed, else whole."
        ),
    ] = None
    window: Annotated[
        Duration,
        Field(description="Window of lanes that set none. Only with dynamic and length-classes."),
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

    def check(self) -> None:
        for name, is_set, joins in (
            ("window", self.window != NEVER, ("dynamic", "length-classes")),
            ("buckets", self.buckets, ("dynamic",)),
            ("bounds", self.bounds, ("length-classes",)),
        ):
            if is_set and self.join not in joins:
                raise SettingError(f"{name} is for join {' or '.join(joins)}, not {self.join}")
        if self.join == "length-classes" and not self.bounds:
            raise SettingError("length-classes needs bounds, such as [128, 512]")

    @property
    def effective_mix(self) -> str:
        return self.mix or ("mixed" if self.join == "continuous" else "prefill-first")

    @property
    def effective_chunk(self) -> int:
        """Tokens; 0: whole prompts."""
        if self.chunk is None:
            return CHUNK if self.join == "continuous" and self.effective_mix == "mixed" else 0
        return self.chunk

    def policies(self, slots: int, step_tokens: int, lanes: Mapping[str, LaneSettings]) -> Policies:
        """The scheduler's policies. step_tokens: 0 for default_step_tokens."""
        return Policies(
            join=self._join(slots, lanes),
            order=ORDERS[self.order],
            mix=MIXES[self.effective_mix],
            chunk=Fixed(self.effective_chunk) if self.effective_chunk else Whole(),
            step_tokens=step_tokens or self.default_step_tokens(slots),
        )

    def default_step_tokens(self, slots: int) -> int:
        """Room for a chunk and the next token of every slot; STEP if prompts are computed whole."""
        return slots + self.effective_chunk if self.effective_chunk else max(STEP, slots)

    def windows(self, lanes: Mapping[str, LaneSettings]) -> dict[str, int]:
        """Each lane's window in nanoseconds: its own, the strategy's, or a default."""
        return {name: _window(lane, self.window) for name, lane in lanes.items()}

    def _join(self, slots: int, lanes: Mapping[str, LaneSettings]) -> Join:
        if self.join == "continuous":
            return Continuous(slots)
        if self.join == "length-classes":
            return LengthClasses(slots, self.bounds, min(self.windows(lanes).values()))
        return Dynamic(slots, SECOND, self.windows(lanes), self.buckets)


def _window(lane: LaneSettings, window: int) -> int:
    for given in (lane.window, window):
        if given != NEVER:
            return given
    return SECOND if lane.ttft == NEVER else round(WINDOW_SHARE * lane.ttft)


class _NameOrParts:
    """Shows in the JSON Schema that a name is valid too, which a validator does not."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "examples": list(NAMED)}, handler(core)]}


Strategy = Annotated[StrategySettings, NoDecode, BeforeValidator(_expand_name), _NameOrParts()]
