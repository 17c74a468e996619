"""The whole configuration: one YAML file, the environment, and flags.

Constructing a ServerConfig uses its arguments and the defaults only. `load` also reads the file and
the environment; see sources.py.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from headway.core.cost.step_cost import StepCost
from headway.core.request import NEVER
from headway.core.settings import Settings
from headway.executor.load import check_executor, traits_of
from headway.server.config.durations import format_window
from headway.server.config.ignored import (
    check_lanes,
    check_most,
    check_overridden,
    check_set,
    check_unkept,
    is_read,
    leave_out_ignored,
)
from headway.server.config.references import (
    check_function_keys,
    check_functions_alone,
    check_keys,
    check_models,
    check_named_lanes,
)
from headway.server.config.routes.check import check_routes
from headway.server.config.sections.engine import OwnEngineSettings
from headway.server.config.sections.keys import check_caps
from headway.server.config.sections.lanes import SHIPPED
from headway.server.config.sections.models import ModelSettings
from headway.server.config.sections.section import (
    Location,
    SettingAtError,
    placed_at,
    refuse_unknown,
)
from headway.server.config.sections.strategy import StrategySettings, parts_of
from headway.server.config.sources import (
    DEFAULT,
    Layers,
    flag_name,
    read_environment,
    read_file,
    refuse_new,
    variable_name,
    without_none,
)
from headway.server.config.tenant import Tenant
from headway.server.config.values import PREFIX, ConfigValues

FILE = f"{PREFIX}CONFIG"  # names the file if no flag does
# Read by the CPU kernels, and by commands that query a running server. They are no settings.
ELSEWHERE = (f"{PREFIX}CPU_KERNELS", f"{PREFIX}API_KEY", f"{PREFIX}ADMIN_KEY")


class ServerConfig(ConfigValues):
    """All settings of a server. An unknown key is an error that names the nearest known one."""

    @classmethod
    def load(cls, path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Self:
        """The settings in force: flag > environment > file > default.

        flags: nested as in the file; None means not given. Raises SettingError, which names the
        source.
        """
        return cls.load_with_origins(path, flags or {})[0]

    @classmethod
    def load_with_origins(cls, path: Path | None, flags: Mapping[str, Any]) -> tuple[Self, Layers]:
        """As load, and also the source of each value.

        Lanes in the file replace the shipped lanes. Without lanes in the file, variables and flags
        change the shipped lanes. The variable HEADWAY_LANES, as JSON, may add a lane; a variable of
        a single limit may not.
        """
        path = path or (Path(os.environ[FILE]) if os.environ.get(FILE) else None)
        file = read_file(path) if path else {}
        layers = Layers(named={("engine", "strategy"): parts_of})
        if "lanes" not in file:
            layers.add({"lanes": SHIPPED}, lambda where: DEFAULT)
        layers.add(file, lambda where: path.name if path else DEFAULT)
        environment = read_environment(cls, (FILE, *ELSEWHERE))
        refuse_new(cls, "lanes", layers.values)
        layers.add(environment, lambda where: variable_name(cls, where))
        given = without_none(flags)
        layers.add(given, flag_name)
        config = layers.build(cls)
        check_overridden(config, [environment, given], layers.origin)
        functions = bool(config.functions)
        check_set(config.lanes, config.strategies, layers.origins, functions=functions)
        entries = config.entries
        check_most(config.lanes, [each.policies for each in entries], layers.origins)
        check_unkept(config, [each.engine for each in entries], layers.origin)
        return config, layers

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            refuse_unknown(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _sound(self) -> Self:
        check_models(self.models)
        if not self.lanes:
            raise SettingAtError(("lanes",), "at least one is needed")
        if self.has_lanes:
            check_named_lanes(self.default_lane, self.jobs_lane, self.lanes)
        strategies = self.strategies
        check_lanes(self.lanes, strategies)
        counts = any(each.fair is not False for each in strategies)
        check_routes(
            self.routes,
            self.models,
            self.lanes,
            list(dict.fromkeys(key.owner for key in self.keys)),
        )
        names = [*[model.served_name for model in self.models], *self.routes]
        check_keys(self.keys, self.lanes, names, self.metrics.key, count=counts)
        if self.versions.store and all(model.function for model in self.models):
            raise SettingAtError(("versions", "store"), "functions have no versions")
        for at, key in enumerate(self.keys):
            check_caps(key, at, self.prices, self.ledger)
        functions = [model.served_name for model in self.functions]
        check_function_keys(self.keys, functions, [each for each in names if each not in functions])
        if len(functions) == len(self.models):
            check_functions_alone(self.engine, self.models, self.prices)
        for at, model in enumerate(self.models):
            if not model.function:
                self._entry(at)._check_entry(at, model.engine.model_fields_set)
        return self

    def _check_entry(self, at: int, own: Collection[str]) -> None:
        """Check a configuration with one entry. at: the entry's index in the file. own: the engine
        settings that the entry sets itself."""

        def place(setting: str) -> Location:
            return (*(("models", at) if setting in own else ()), "engine", setting)

        traits = traits_of(self.engine.executor)
        with placed_at(*place("strategy")):  # the core's checks and the executor's
            policies = self.policies
            traits.check_policies(policies)
        with placed_at("models", at, "quantize"):
            check_executor(self.engine.executor, {}, dtype=self.model.precision)
        with placed_at("models", at, "adapters"):
            traits.check_adapters(self.model.adapters)
        if policies.predicting and not self.engine.cost:
            raise SettingAtError(
                place("strategy"),
                "it predicts the times of steps, and engine.cost names no cost file; make one "
                "with headway calibrate",
            )
        with placed_at("lanes"):
            self.check_shares()

    def check_shares(self, num_blocks: int = NEVER) -> None:
        """Raise SettingError if the lanes' shares do not fit into what the engine has."""
        known = StepCost.of(1)  # any cost model: whether there is one is checked elsewhere
        Settings(
            num_blocks, self.engine.tokens_per_block, self.core_lanes, self.policies, cost=known
        )

    def _entry(self, at: int) -> Self:
        """The configuration of a server with this checkpoint alone. Raises SettingError."""
        model = self.models[at]
        with placed_at("models", at, "engine"):
            engine = model.engine.over(self.engine)
        alone = model.model_copy(update={"engine": OwnEngineSettings()})
        return self.model_copy(update={"models": (alone,), "engine": engine})

    @property
    def entries(self) -> tuple[Self, ...]:
        """For each checkpoint, the configuration of a server with it alone. `engine` holds the
        settings in force for that checkpoint; all else is as here."""
        return tuple(
            [self._entry(at) for at, model in enumerate(self.models) if not model.function]
        )

    @property
    def engines(self) -> tuple[Self, ...]:
        """As entries, but one for each engine; replicas have names of their own."""
        return tuple([each for entry in self.entries for each in entry._replicas()])

    def _replicas(self) -> list[Self]:
        """The configuration of each engine, for a configuration with one checkpoint."""
        return [
            self.model_copy(update={"models": (self.model.model_copy(update=own),)})
            for own in [{"name": name, "replicas": 1} for name in self.model.engine_names]
        ]

    @property
    def is_one(self) -> bool:
        """Whether a single process answers: one entry without replicas."""
        return sum([model.replicas for model in self.models]) == 1

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Notes on what an operator may want to change, one line each, for all entries."""
        return tuple(dict.fromkeys([note for entry in self.entries for note in entry.notes]))

    @property
    def functions(self) -> tuple[ModelSettings, ...]:
        """The entries that are functions."""
        return tuple([model for model in self.models if model.function])

    @property
    def strategies(self) -> tuple[StrategySettings, ...]:
        """The strategies in force, one for each checkpoint."""
        return tuple([entry.strategy for entry in self.entries])

    def effective(self) -> dict[str, Any]:
        """The settings in force as JSON, with defaults. Keys show only the first hash digits."""
        settings = self.model_dump(mode="json")
        entries = iter(self.entries)
        for model, shown in zip(self.models, settings["models"], strict=True):
            shown["name"] = model.served_name
            own = shown.pop("engine")
            if model.function:
                restart = own["restart"] if model.engine.model_fields_set else self.engine.restart
                kept = {name: shown[name] for name in ("name", "function", "memory")}
                shown.clear()
                shown.update(kept, engine={"restart": restart})
                continue
            entry = next(entries)
            del shown["function"]
            if model.replicas == 1:
                del shown["replicas"]
            if model.memory is None:
                del shown["memory"]
            if model.engine.model_fields_set:
                shown["engine"] = entry._effective_engine()
        settings["server"]["default_lane"] = self.default_lane
        settings["jobs"]["lane"] = self.jobs_lane
        settings["engine"] = self._effective_engine()
        strategies = self.strategies
        readers = [each for each in strategies if is_read("window", (each,))]
        windows = next(iter(readers), self.strategy).windows(self.lanes)
        for name, lane in settings["lanes"].items():
            lane["window"] = format_window(windows[name])
            leave_out_ignored(lane, strategies, functions=bool(self.functions))
        for key, own in zip(self.keys, settings["keys"], strict=True):
            tenant = key.to_tenant(self.lanes, self.default_lane)
            own["tenant"], own["default_lane"] = tenant.name, tenant.default_lane
            own["lanes"] = [name for name in self.lanes if name in tenant.lanes]
            if not key.models:
                del own["models"]
        return settings

    def _effective_engine(self) -> dict[str, Any]:
        """The engine's settings in force as JSON."""
        strategy, engine = self.strategy, self.engine.model_dump(mode="json")
        engine["step_tokens"] = self.policies.step_tokens
        engine["block_size"] = self.engine.tokens_per_block
        mix, chunk = strategy.effective_mix, strategy.effective_chunk
        if strategy.join == "continuous":
            chunk = min(chunk, engine["step_tokens"])
        effective = {"mix": mix, "chunk": chunk, "fair": self.is_fair}
        engine["strategy"] = strategy.model_copy(update=effective).model_dump(mode="json")
        return engine

    def visible_to(self, tenant: Tenant) -> dict[str, Any]:
        """The settings in force that a caller may see: only its own key and lanes, and no paths."""
        settings = self.effective()
        settings["keys"] = [key for key in settings["keys"] if key["name"] == tenant.key]
        settings["lanes"] = {
            name: lane for name, lane in settings["lanes"].items() if name in tenant.lanes
        }
        settings["models"] = [each for each in settings["models"] if tenant.may_use(each["name"])]
        settings["routes"] = {
            name: route.shown_to(tenant.name)
            for name, route in self.routes.items()
            if tenant.may_use(name)
        }
        for model in settings["models"]:
            for name in ("adapters", "path", "function"):  # these name files and modules
                model.pop(name, None)
        # vLLM's options may contain a hub token.
        for section in (settings, *settings["models"]):
            for name in ("journal", "cost", "vllm"):
                section.get("engine", {}).pop(name, None)
        del settings["metrics"]  # it names a key
        del settings["jobs"]["store"], settings["jobs"]["webhooks"], settings["ledger"]["url"]
        del settings["versions"]
        return settings
