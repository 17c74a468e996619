"""Which version each engine of a model obeys, and how it changes to another one (InForce)."""

from collections.abc import Sequence

from headway.core.commands import Retune
from headway.rollout.trial import Outcome
from headway.server.config.config import ServerConfig
from headway.server.engine.handle import EngineState
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.observe.logs import Log
from headway.server.versions.retunable import check_retune, policies_of
from headway.store.versions import VersionConflictError

SERVER_ENDED = "the server was ended during its trial"
UNTOLD = 0  # version of an engine that was told none: it runs the file's configuration


class InForce:
    """The versions that a model's engines run. base: the file's configuration, with which the
    engines were started."""

    def __init__(self, replicas: Replicas, base: ServerConfig, log: Log) -> None:
        self.replicas, self._base, self._log = replicas, base, log
        self._told = dict.fromkeys(replicas.models, UNTOLD)

    @property
    def engines(self) -> Sequence[Model]:
        return self.replicas.models

    @property
    def versions(self) -> dict[str, int]:
        """The version that each engine reports, by the engine's name."""
        return {each.name: each.engine.load.version for each in self.engines}

    @property
    def fault(self) -> tuple[str, Outcome] | None:
        """Why a trial must end, and how it does, if an engine does not serve; None: all serve."""
        for each in self.engines:
            if each.engine.state is not EngineState.READY:
                if each.engine.state is EngineState.DRAINING:
                    return SERVER_ENDED, Outcome.STOPPED
                why = f"the engine {each.name} was {each.engine.state} during the trial"
                return why, Outcome.TRIPPED
        return None

    def check_ready(self) -> None:
        """Check that all engines serve. Raises VersionConflictError."""
        for each in self.engines:
            if (state := each.engine.state) is not EngineState.READY:
                raise VersionConflictError(f"no trial can begin: the engine {each.name} is {state}")

    def check(self, config: ServerConfig, *engines: Model) -> None:
        """Check that engines (all, if none is named) can change to it. Raises SettingError."""
        for each in engines or self.engines:
            check_retune(each, self._base, config)

    def begin(self, engine: Model, number: int, config: ServerConfig) -> None:
        """Put the version in force with which an engine that has just been loaded begins. What it
        was told while it was loaded may not have reached it."""
        self._told[engine] = UNTOLD
        self.tell(engine, number, config)

    def tell(self, engine: Model, number: int, config: ServerConfig, quietly: bool = False) -> None:
        """Put a version in force on an engine. quietly: log it at the debug level, for the many
        changes of a trial."""
        if self._told[engine] == number:
            return
        self._told[engine] = number
        engine.engine.retune(Retune(number, policies_of(engine, config), config.core_lanes))
        engine.lanes = {lane.name: lane for lane in config.core_lanes}
        said = self._log.debug if quietly else self._log.info
        said("version in force", version=number, engine=engine.name)
