"""The batching strategy: a name of `headway compare`, or its parts."""

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
CHUNKED = "continuous-chunk-"  # and a number of tokens
STEP = 2_048  # tokens of a step of whole prompts; the last prompt may overrun it
WINDOW_SHARE = 0.25  # of a lane's first-token budget, for which its oldest may be held
WHOLE = "whole"


def _parts(value: Any) -> Any:
    """A name as the parts that it stands for; parts as they are."""
    if not isinstance(value, str):
        return value
    if value in NAMED:
        return NAMED[value]
    size = value.removeprefix(CHUNKED)
    if size != value and size.isdecimal():
        return {"order": "first-come", "chunk": int(size)}
    if value.startswith("static"):
        raise SettingError(
            f"{value} waits until its group is full, and a server never knows whether more will "
            "come: use dynamic-lanes"
        )
    raise SettingError(
        f"there is no strategy {value!r}{did_you_mean(value, [*NAMED, f'{CHUNKED}256'])}"
    )


def _chunk(value: Any) -> int | None:
    """Tokens, 0 for whole prompts, None for what suits the rest."""
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
    """The defaults are those of `priority`."""

    join: Annotated[
        Literal["continuous", "dynamic", "length-classes"],
        Field(description="When waiting work may start; all have engine.slots places."),
    ] = "continuous"
    order: Annotated[
        Literal["first-come", "priority", "shortest-first"], Field(description="Who goes first.")
    ] = "priority"
    mix: Annotated[
        Literal["mixed", "prefill-first", "alternate"] | None,
        Field(
            description="Whether prompts share steps with decoding. Default: mixed if continuous, "
            "else prefill-first."
        ),
    ] = None
    chunk: Annotated[
        Chunked,
        Field(
            description="Prompt tokens of a step, or whole. Default: 256 if continuous and mixed, "
            "else whole."
        ),
    ] = None
    window: Annotated[
        Duration,
        Field(description="For lanes without one of their own. With dynamic and length-classes."),
    ] = NEVER
    buckets: Annotated[
        tuple[Count, ...], Field(description="Padded widths of dynamic groups, ascending; tokens.")
    ] = ()
    bounds: Annotated[
        tuple[Count, ...],
        Field(description="Longest prompt of each length class but the last, ascending; tokens."),
    ] = ()

    def check(self) -> None:
        for name, said, joins in (
            ("window", self.window != NEVER, ("dynamic", "length-classes")),
            ("buckets", self.buckets, ("dynamic",)),
            ("bounds", self.bounds, ("length-classes",)),
        ):
            if said and self.join not in joins:
                raise SettingError(f"{name} is for join {' or '.join(joins)}, not {self.join}")
        if self.join == "length-classes" and not self.bounds:
            raise SettingError("length-classes needs bounds, such as [128, 512]")

    @property
    def mixes(self) -> str:
        return self.mix or ("mixed" if self.join == "continuous" else "prefill-first")

    @property
    def chunks(self) -> int:
        """Tokens; 0: whole prompts."""
        if self.chunk is None:
            return CHUNK if self.join == "continuous" and self.mixes == "mixed" else 0
        return self.chunk

    def policies(self, slots: int, step_tokens: int, lanes: Mapping[str, LaneSettings]) -> Policies:
        """step_tokens: 0 for what suits the chunk."""
        return Policies(
            join=self._join(slots, lanes),
            order=ORDERS[self.order],
            mix=MIXES[self.mixes],
            chunk=Fixed(self.chunks) if self.chunks else Whole(),
            step_tokens=step_tokens or self.step(slots),
        )

    def step(self, slots: int) -> int:
        """Everybody's next token beside a chunk; or, with whole prompts, a usual step."""
        return slots + self.chunks if self.chunks else max(STEP, slots)

    def windows(self, lanes: Mapping[str, LaneSettings]) -> dict[str, int]:
        """Nanoseconds for which each lane's oldest is held: its own, the strategy's, or ours."""
        return {name: _first(lane, self.window) for name, lane in lanes.items()}

    def _join(self, slots: int, lanes: Mapping[str, LaneSettings]) -> Join:
        if self.join == "continuous":
            return Continuous(slots)
        if self.join == "length-classes":
            return LengthClasses(slots, self.bounds, min(self.windows(lanes).values()))
        return Dynamic(slots, SECOND, self.windows(lanes), self.buckets)


def _first(lane: LaneSettings, window: int) -> int:
    for said in (lane.window, window):
        if said != NEVER:
            return said
    return SECOND if lane.ttft == NEVER else round(WINDOW_SHARE * lane.ttft)


class _NameOrParts:
    """In the JSON schema the validator that takes a name would not show."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "examples": list(NAMED)}, handler(core)]}


Strategy = Annotated[StrategySettings, NoDecode, BeforeValidator(_parts), _NameOrParts()]
