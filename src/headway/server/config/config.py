"""The configuration as a whole: one YAML file, the environment, and flags.

A ServerConfig that is constructed takes its arguments and the defaults, and reads nothing. `load`
also reads the file and the environment; see sources.py.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Lane
from headway.core.policies.fairly import Fairly
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.errors import did_you_mean
from headway.executor.load import check_executor, traits_of
from headway.server.config.durations import format_window
from headway.server.config.ignored import check_lanes, check_set, leave_out_ignored
from headway.server.config.sections.engine import EngineSettings
from headway.server.config.sections.jobs import JobSettings, VersionSettings
from headway.server.config.sections.keys import KeySettings, weights_of
from headway.server.config.sections.lanes import (
    OFFLINE,
    SHIPPED,
    STANDARD,
    LaneName,
    LaneSettings,
    shipped_lanes,
)
from headway.server.config.sections.logs import LogSettings
from headway.server.config.sections.metrics import MetricsSettings
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.sections.section import SettingAtError, placed_at, refuse_unknown
from headway.server.config.sections.server import ServerSettings
from headway.server.config.sections.strategy import BY_BUDGETS, StrategySettings
from headway.server.config.sources import (
    DEFAULT,
    FLAG,
    Layers,
    read_environment,
    read_file,
    variable_name,
    without_none,
)
from headway.server.config.tenant import Tenant

PREFIX, NESTED = "HEADWAY_", "__"  # variables look like HEADWAY_SERVER__PORT
FILE = f"{PREFIX}CONFIG"  # names the file, if no flag does


class ServerConfig(BaseSettings):
    """All settings of a server. An unknown key is an error that names the nearest known one."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=NESTED, extra="forbid", frozen=True
    )

    models: Annotated[
        tuple[ModelSettings, ...],
        Field(
            description="The model that is served; one today.",
            json_schema_extra={"minItems": 1, "maxItems": 1},
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
    prices: PriceSettings = PriceSettings()
    jobs: JobSettings = JobSettings()
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

    @classmethod
    def load(cls, path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Self:
        """The settings in force: flag > environment > file > default.

        Raises SettingError, which names the source. flags: nested as in the file; None means not
        given.
        """
        return cls.load_with_origins(path, flags or {})[0]

    @classmethod
    def load_with_origins(cls, path: Path | None, flags: Mapping[str, Any]) -> tuple[Self, Layers]:
        """As load, and which source set each value.

        The lanes of a file replace those that ship. Without lanes in the file, variables and flags
        change those that ship.
        """
        path = path or (Path(os.environ[FILE]) if os.environ.get(FILE) else None)
        file = read_file(path) if path else {}
        layers = Layers()
        if "lanes" not in file:
            layers.add({"lanes": SHIPPED}, lambda where: DEFAULT)
        layers.add(file, lambda where: path.name if path else DEFAULT)
        layers.add(read_environment(cls, [FILE]), lambda where: variable_name(cls, where))
        layers.add(without_none(flags), lambda where: FLAG)
        config = layers.build(cls)
        check_set(config.lanes, config.strategy, layers.origins)
        return config, layers

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            refuse_unknown(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(self.models) != 1:
            raise SettingAtError(("models",), f"one is served today, not {len(self.models)}")
        if not self.lanes:
            raise SettingAtError(("lanes",), "at least one is needed")
        if self.default_lane not in self.lanes:
            raise SettingAtError(("server", "default_lane"), self._no_lane(self.default_lane))
        check_lanes(self.lanes, self.strategy)
        if self.jobs_lane not in self.lanes:
            raise SettingAtError(("jobs", "lane"), self._no_lane(self.jobs_lane))
        self._check_keys()
        traits = traits_of(self.engine.executor)
        with placed_at("engine", "strategy"):  # the core's own checks, and the executor's
            policies = self.policies
            traits.check_policies(policies)
        with placed_at("models", 0, "quantize"):
            check_executor(self.engine.executor, {}, dtype=self.model.precision)
        with placed_at("models", 0, "adapters"):
            traits.check_adapters(self.model.adapters)
        if policies.predicting and not self.engine.cost:
            raise SettingAtError(
                ("engine", "strategy"),
                "it goes by what steps will take, and engine.cost names no cost file; make one "
                "with headway calibrate",
            )
        with placed_at("lanes"):
            self.check_shares()
        return self

    def check_shares(self, num_blocks: int = NEVER) -> None:
        """Raises SettingError if the lanes' shares do not fit into the whole."""
        known = StepCost.of(1)  # whether there is a cost model is another question
        Settings(
            num_blocks, self.engine.tokens_per_block, self.core_lanes, self.policies, cost=known
        )

    def _check_keys(self) -> None:
        for field in ("name", "sha256"):
            values = [getattr(key, field) for key in self.keys]
            if len(set(values)) < len(values):
                raise SettingAtError(("keys",), f"two have the same {field}")
        weights_of(self.keys, count=self.strategy.fair is not False)
        names = [key.name for key in self.keys]
        if (scraper := self.metrics.key) and scraper not in names:
            why = f"there is no key {scraper!r}{did_you_mean(scraper, names)}"
            raise SettingAtError(("metrics", "key"), why if names else f"{why}none")
        for at, key in enumerate(self.keys):
            for lane in (*key.lanes, key.default_lane):
                if lane and lane not in self.lanes:
                    raise SettingAtError(("keys", at), f"{key.name}: {self._no_lane(lane)}")

    def _no_lane(self, name: str) -> str:
        return f"there is no lane {name!r}{did_you_mean(name, self.lanes)}"

    @property
    def model(self) -> ModelSettings:
        return self.models[0]

    @property
    def default_lane(self) -> str:
        """Lane of requests that name none, if their key has no default either."""
        first = STANDARD if STANDARD in self.lanes else next(iter(self.lanes))
        return self.server.default_lane or first

    @property
    def jobs_lane(self) -> str:
        """Lane of the requests of jobs."""
        last = max(self.lanes, key=lambda name: self.lanes[name].priority)
        return self.jobs.lane or (OFFLINE if OFFLINE in self.lanes else last)

    @property
    def strategy(self) -> StrategySettings:
        """The strategy in force. The default goes by budgets if there are some and if times can be
        predicted, else by priority."""
        if self.engine.strategy is not None:
            return self.engine.strategy
        return BY_BUDGETS if self.engine.cost and self._has_budgets else StrategySettings()

    @property
    def _has_budgets(self) -> bool:
        return any(lane.budget.is_timed for lane in self.core_lanes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What an operator may want to change, one line each."""
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

    def effective(self) -> dict[str, Any]:
        """The settings in force as JSON, with defaults. Keys show their hash's first digits."""
        settings = self.model_dump(mode="json")
        settings["models"][0]["name"] = self.model.served_name
        settings["server"]["default_lane"] = self.default_lane
        settings["jobs"]["lane"] = self.jobs_lane
        engine, strategy = settings["engine"], self.strategy
        engine["step_tokens"] = self.policies.step_tokens
        engine["block_size"] = self.engine.tokens_per_block
        mix, chunk = strategy.effective_mix, strategy.effective_chunk
        effective = {"mix": mix, "chunk": chunk, "fair": self.is_fair}
        filled = strategy.model_copy(update=effective)
        engine["strategy"] = filled.model_dump(mode="json")
        windows = strategy.windows(self.lanes)
        for name, lane in settings["lanes"].items():
            lane["window"] = format_window(windows[name])
            leave_out_ignored(lane, strategy)
        for key, own in zip(self.keys, settings["keys"], strict=True):
            tenant = key.to_tenant(self.lanes, self.default_lane)
            own["tenant"], own["default_lane"] = tenant.name, tenant.default_lane
            own["lanes"] = [name for name in self.lanes if name in tenant.lanes]
        return settings

    def visible_to(self, tenant: Tenant) -> dict[str, Any]:
        """The settings in force that a caller may see: its own key and lanes, and no paths."""
        settings = self.effective()
        settings["keys"] = [key for key in settings["keys"] if key["name"] == tenant.key]
        settings["lanes"] = {
            name: lane for name, lane in settings["lanes"].items() if name in tenant.lanes
        }
        del settings["models"][0]["adapters"]  # where they lie; /v1/models lists their names
        del settings["models"][0]["path"], settings["engine"]["journal"], settings["engine"]["cost"]
        del settings["metrics"]  # it names a key
        del settings["jobs"]["store"], settings["jobs"]["webhooks"], settings["versions"]
        del settings["engine"]["vllm"]  # it may hold a token of the hub
        return settings
