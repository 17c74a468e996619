"""The values of a configuration (ConfigValues): its sections, and values derived from them."""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headway.core.lane import Lane
from headway.core.policies.fairly import Fairly
from headway.core.policies.policies import Policies
from headway.server.config.ledger.ledger import LedgerSettings
from headway.server.config.routes.settings import RouteSettings
from headway.server.config.sections.engine import EngineSettings
from headway.server.config.sections.jobs import JobSettings, VersionSettings
from headway.server.config.sections.keys import KeySettings, weights_of
from headway.server.config.sections.lanes import (
    OFFLINE,
    STANDARD,
    LaneName,
    LaneSettings,
    shipped_lanes,
)
from headway.server.config.sections.logs import LogSettings
from headway.server.config.sections.metrics import MetricsSettings
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.sections.server import ServerSettings
from headway.server.config.sections.strategy import BY_BUDGETS, StrategySettings

PREFIX, NESTED = "HEADWAY_", "__"  # variables look like HEADWAY_SERVER__PORT


class ConfigValues(BaseSettings):
    """The sections, each checked by itself."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=NESTED, extra="forbid", frozen=True
    )
    has_lanes: ClassVar[bool] = True  # whether the section `lanes` has the lanes that are served

    models: Annotated[
        tuple[ModelSettings, ...],
        Field(
            description="The checkpoints and functions that are served.",
            json_schema_extra={"minItems": 1},
        ),
    ] = (ModelSettings(),)
    engine: EngineSettings = EngineSettings()
    lanes: Annotated[
        dict[LaneName, LaneSettings],
        Field(description="Lanes by name. A file's lanes replace the three that ship."),
    ] = Field(default_factory=shipped_lanes)
    keys: Annotated[
        tuple[KeySettings, ...],
        Field(description="API keys. Default: none; the server is open to all who can reach it."),
    ] = ()
    routes: Annotated[
        dict[str, RouteSettings],
        Field(description="Names that several models answer together. Default: none."),
    ] = {}
    prices: PriceSettings = PriceSettings()
    jobs: JobSettings = JobSettings()
    ledger: LedgerSettings = LedgerSettings()
    server: ServerSettings = ServerSettings()
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    versions: VersionSettings = VersionSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the arguments: load_with_origins merges the other sources itself."""
        return (init_settings,)

    @property
    def model(self) -> ModelSettings:
        """The first entry. In one of ServerConfig.entries, it is the only one."""
        return self.models[0]

    @property
    def default_lane(self) -> str:
        """The lane of requests that name none and whose key has no default lane."""
        first = STANDARD if STANDARD in self.lanes else next(iter(self.lanes))
        return self.server.default_lane or first

    @property
    def jobs_lane(self) -> str:
        """The lane of jobs' requests."""
        last = max(self.lanes, key=lambda name: self.lanes[name].priority)
        return self.jobs.lane or (OFFLINE if OFFLINE in self.lanes else last)

    @property
    def strategy(self) -> StrategySettings:
        """The strategy in force. The default is budgets if a lane has a budget and engine.cost is
        set, else priority."""
        if self.engine.strategy is not None:
            return self.engine.strategy
        return BY_BUDGETS if self.engine.cost and self._has_budgets else StrategySettings()

    @property
    def _has_budgets(self) -> bool:
        return any(lane.budget.is_timed for lane in self.core_lanes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what an operator may want to change in `engine`, one line each."""
        if self.engine.strategy is not None or self.engine.cost or not self._has_budgets:
            return ()
        return ("lanes go by priority, not by budgets: no engine.cost (headway calibrate)",)

    @property
    def policies(self) -> Policies:
        """The policies of the strategy in force."""
        engine = self.engine
        made = self.strategy.policies(engine.slots, engine.step_tokens, self.lanes)
        if not self.is_fair:
            return made
        return replace(made, order=Fairly(made.order, weights_of(self.keys, count=True)))

    @property
    def is_fair(self) -> bool:
        """Whether tenants share the places of each lane."""
        fair = self.strategy.fair
        return len({key.owner for key in self.keys}) > 1 if fair is None else fair

    @property
    def core_lanes(self) -> tuple[Lane, ...]:
        return tuple(lane.to_lane(name) for name, lane in self.lanes.items())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to print at the start, one line each."""
        if self.keys:
            return ()
        where = f"{self.server.host}:{self.server.port}"
        if not self.server.is_exposed:
            return ("no API keys: open to everybody on this machine",)
        return (
            f"NO API KEYS: OPEN TO EVERYBODY who can reach {where}; "
            "make one with `headway config key NAME`",
        )
