"""Which version of a model is in force, and how that changes (VersionKeeper)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from secrets import randbits

from headway.errors import first_line
from headway.rollout.proposal import Proposal
from headway.server import clock
from headway.server.config.config import ServerConfig
from headway.server.config.versioned import versioned, with_change, with_version
from headway.server.intake.model import Model
from headway.server.intake.replicas import Replicas
from headway.server.observe.logs import Log
from headway.server.versions.beginning import begun, foreseen
from headway.server.versions.bodies import ProposeBody, StartBody
from headway.server.versions.changes import Changes
from headway.server.versions.ending import ending, say_end, say_lost
from headway.server.versions.in_force import SERVER_ENDED, InForce
from headway.server.versions.live_trial import LiveTrial
from headway.server.versions.metrics import VersionMetrics
from headway.server.versions.split import split_for
from headway.server.versions.stored import VersionStore
from headway.store.database import StoreError
from headway.store.versions import (
    FREE,
    FREE_OR_TRIED,
    ON_TRIAL,
    PROMOTED,
    PROPOSED,
    REJECTED,
    ROLLED_BACK,
    StoredVersion,
    VersionConflictError,
    VersionEvent,
)

NOBODY, THIS = "nobody", "the proposal"
CLOSING = 10  # seconds that changes may take at the end of the server
AGAIN = 1  # second after which the end of a trial is written again


class VersionKeeper:
    """The versions of one model. It is made before the model's engines. Raises SettingError if the
    promoted version cannot be served."""

    def __init__(self, model: str, base: ServerConfig, store: VersionStore, log: Log) -> None:
        """base: the file's configuration of this model, with the settings that no version holds."""
        self.model, self._base, self._log = model, base, log
        self._store, self.versions, self.ask = store, store.versions, store.ask
        self.promoted = foreseen(model, base, store.versions)
        self._configured(self.promoted)
        self._has_entered = False
        self.live: LiveTrial | None = None
        self._changes = Changes()
        self._deciding = asyncio.Lock()  # one change of a version's state at a time
        self._configs: dict[int, ServerConfig] = {}  # of the versions that may come into force

    async def enter(self) -> None:
        """Store with which version the server begins, now that a model of it is loaded: a start
        that fails changes no version. Raises SettingError, StoreError."""
        async with self._deciding:
            if self._has_entered:
                return
            self.promoted = await self.ask(begun, self.model, self._base, self.versions)
            self._configured(self.promoted)
            self._has_entered = True

    def begin(self, engine: Model) -> None:
        """Put the promoted version in force on an engine that has just been loaded, before any
        request is let in. Raises SettingError if the engine cannot change to it."""
        number, config = self.promoted.number, self._configured(self.promoted)
        self.in_force.check(config, engine)
        self._configs[number] = config
        self.in_force.begin(engine, number, config)
        if self._promotes:
            self._promotes(config)

    def greet(self) -> None:
        """Log which version is in force from the start."""
        content = self.promoted.content
        told = {"author": content["author"], "reason": content["reason"]}
        number = self.promoted.number
        self._log.info("version in force", model=self.model, version=number, **told)

    def attach(self, replicas: Replicas, promotes: Callable[[ServerConfig], object] | None) -> None:
        """Set the engines that obey. promotes: called with the promoted version's configuration."""
        self.in_force, self._promotes = InForce(replicas, self._base, self._log), promotes
        self.metrics = VersionMetrics(self.in_force, lambda: self.live)

    async def close(self) -> None:
        """End a running trial, which takes the candidate back, and all other changes."""
        if self.live:
            self.live.stop(SERVER_ENDED)
        await self._changes.close(CLOSING)

    # -- what may be in force

    def _configured(self, version: StoredVersion) -> ServerConfig:
        return with_version(self._base, version.content["config"], f"version {version.number}")

    # -- what an operator asks

    async def propose(self, body: ProposeBody, author: str) -> StoredVersion:
        """Store a change of the promoted version. Raises SettingError."""
        promoted = self.promoted
        values = versioned(self._configured(promoted))  # an older headway filled in fewer
        config = with_change(self._base, values, body.config, THIS)
        self.in_force.check(config)
        proposal = body.proposal(versioned(config), author, self.model)
        proposal = replace(proposal, base=promoted.number)
        event = VersionEvent(PROPOSED, clock.unix(), proposal.author, proposal.reason)
        made = await self.ask(self.versions.add, proposal.as_json(), proposal.digest, event)
        self._log.info("version proposed", version=made.number, author=proposal.author)
        return made

    async def start(self, number: int, body: StartBody, author: str) -> StoredVersion | None:
        """Begin a version's trial against the promoted one; None if there is no such version.
        Raises SettingError, VersionConflictError."""
        return await self._changes.run(self._start(number, body, author))

    async def _start(self, number: int, body: StartBody, author: str) -> StoredVersion | None:
        async with self._deciding:
            if self.live:
                raise VersionConflictError(f"version {self.live.number} is on trial")
            self.in_force.check_ready()
            found = await self.ask(self.versions.get, number)
            if found is None:
                return None
            await self._store.check_base(found, self.promoted)
            config = self._configured(found)
            self.in_force.check(config)
            engines = self.in_force.engines[:2]  # the ones to compare
            expects = found.content["expects"]
            plan = body.plan(Proposal.from_json(found.content), randbits(32), len(engines))
            split = split_for(self.in_force.engines, body.share, body.sticky, plan.seed)
            details = {"plan": asdict(plan)} | (split.as_json() if split else {})
            event = VersionEvent(ON_TRIAL, clock.unix(), author, "", details)
            found = await self.ask(self.versions.happen, number, event, FREE)
            control = self._configured(self.promoted)
            self._configs = {self.promoted.number: control, number: config}
            told = self.promoted.number, plan, control.core_lanes
            live = LiveTrial(number, *told, clock.now())
            live.promotes, live.expects = body.promote_if_better, expects
            self.live = live
            self.in_force.replicas.assignment = split
            self._changes.begin(self._try(live, engines))
            self._log.info("trial begun", version=number, against=live.control, seed=plan.seed)
            return found

    async def promote(self, number: int, author: str, why: str) -> StoredVersion | None:
        """Put a version in force for good; None if there is no such version. Raises SettingError,
        VersionConflictError."""
        return await self._changes.run(self._promote(number, author, why))

    async def _promote(self, number: int, author: str, why: str) -> StoredVersion | None:
        async with self._deciding:
            if self.live:
                raise VersionConflictError(
                    f"version {self.live.number} is on trial: roll it back first"
                )
            found = await self.ask(self.versions.get, number)
            if found is None:
                return None
            if found.state == PROMOTED and number != self.promoted.number:
                return self._follow(found, found, author)
            await self._store.check_base(found, self.promoted)
            config = self._configured(found)
            self.in_force.check(config)
            event = VersionEvent(PROMOTED, clock.unix(), author, why)
            found = await self.ask(self.versions.happen, number, event, FREE_OR_TRIED)
            if found:
                self._adopt(found, config, author)
            return found

    def _adopt(self, version: StoredVersion, config: ServerConfig, author: str) -> None:
        """Put a version in force that the store has just marked as promoted."""
        self.promoted, self._configs[version.number] = version, config
        for engine in self.in_force.engines:
            self.in_force.tell(engine, version.number, config)
        if self._promotes:
            self._promotes(config)
        self._log.info("version promoted", version=version.number, author=author)

    def _follow(self, promoted: StoredVersion, asked: StoredVersion, author: str) -> StoredVersion:
        """Put in force what is promoted in the store: by another server, or by this one, which was
        not told that it was stored. Returns the version that was asked for. Raises SettingError."""
        config = self._configured(promoted)
        self.in_force.check(config)
        self._adopt(promoted, config, author)
        return asked

    async def roll_back(self, number: int, author: str, why: str) -> StoredVersion | None:
        """End a version's trial. If it is promoted, put the version before it in force again."""
        return await self._changes.run(self._roll_back(number, author, why))

    async def _roll_back(self, number: int, author: str, why: str) -> StoredVersion | None:
        live = self._tried(number)
        if live is None:
            async with self._deciding:
                live = self._tried(number)
                if live is None:
                    return await self._take_back(number, author, why)
        live.roll_back(author, why or f"{author} rolled it back")  # whatever the store does
        await live.has_run.wait()
        try:
            async with self._deciding:
                if self.live is live:
                    await self._conclude(live)
            return await self.ask(self.versions.get, number)
        except StoreError as error:
            why = f"the trial has ended, and its end is stored later: {error}"
            raise StoreError(why) from error

    def _tried(self, number: int) -> LiveTrial | None:
        """The running trial, if it is of this version."""
        return self.live if self.live and self.live.number == number else None

    async def _take_back(self, number: int, author: str, why: str) -> StoredVersion | None:
        found = await self.ask(self.versions.get, number)
        if found is None:
            return None
        gone = VersionEvent(ROLLED_BACK, clock.unix(), author, why)
        if found.state == ON_TRIAL:  # no trial of it runs here
            return await self.ask(self.versions.happen, number, gone, (ON_TRIAL,))
        if self.live:
            tried = self.live.number
            raise VersionConflictError(f"version {tried} is on trial: roll it back first")
        if found.state != PROMOTED:
            promoted = await self.ask(self.versions.promoted, self.model)
            if promoted and number == self.promoted.number:
                return self._follow(promoted, found, author)
            raise VersionConflictError(f"version {number} is {found.state}, and not in force")
        back = await self._store.before(found)
        config = self._configured(back)
        self.in_force.check(config)
        put = VersionEvent(PROMOTED, gone.at, author, f"version {number} was rolled back")
        found, back = await self.ask(self.versions.take_back, number, gone, back.number, put)
        self._log.warning("version rolled back", version=number, to=back.number, why=why, by=author)
        self._adopt(back, config, author)
        return found

    async def reject(self, number: int, author: str, why: str) -> StoredVersion | None:
        """Reject a version: it will not be tried. Raises VersionConflictError."""
        event = VersionEvent(REJECTED, clock.unix(), author, why)
        async with self._deciding:
            is_tried = self.live and self.live.number == number
            before = FREE if is_tried else FREE_OR_TRIED
            return await self.ask(self.versions.happen, number, event, before)

    # -- a trial

    async def _try(self, live: LiveTrial, engines: Sequence[Model]) -> None:
        try:
            try:
                await live.run(engines, clock.now, self._tell, lambda: self.in_force.fault)
            finally:
                self.in_force.replicas.assignment = None
        except Exception as error:  # the task's edge: run has taken the candidate back
            self._log.critical("the trial has failed", version=live.number, exc_info=True)
            live.failure = f"the trial has failed: {first_line(error)}"
            await self._record(live)
            raise
        else:
            await self._record(live)
        finally:
            if self.live is live:
                self.live = None

    async def _record(self, live: LiveTrial) -> None:
        """Conclude a trial as soon as the store can be written, unless a rollback does."""
        live.has_run.set()
        while self.live is live:
            try:
                async with self._deciding:
                    if self.live is live:
                        await self._conclude(live)
            except (StoreError, VersionConflictError) as error:
                say_lost(self._log, live, ending(live, clock.unix()), error)
                if isinstance(error, VersionConflictError):  # another server has decided
                    return
                await asyncio.sleep(AGAIN)

    def _tell(self, engine: Model, number: int) -> None:
        self.in_force.tell(engine, number, self._configs[number], quietly=True)

    async def _conclude(self, live: LiveTrial) -> None:
        """Store what the end of a trial says of its version, and act on it. Raises StoreError,
        VersionConflictError."""
        found = await self._store.conclude(live.number, ending(live, clock.unix()), self.promoted)
        self.live, event = None, found.events[-1]
        if not live.failure:
            self.metrics.ended[str(live.trial.verdict.outcome),] += 1
        if event.state == PROMOTED:
            self._adopt(found, self._configs[live.number], event.author)
            return
        say_end(self._log, live, event)
