"""Opens the versions of a server, if its configuration names a store for them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from headway.errors import SettingError
from headway.server.config.config import ServerConfig
from headway.server.config.tenant import Tenant
from headway.server.http.application import DocumentedApp
from headway.server.http.body import BodyReader
from headway.server.http.openapi import REF
from headway.server.observe.logs import Log

if TYPE_CHECKING:
    from headway.server.versions.keepers import VersionKeepers

PATIENCE = 2.0  # seconds that the live page waits for the store


def open_versions(config: ServerConfig, log: Log) -> "VersionKeepers | None":
    """The keepers of all models; None without a store. Raises SettingError if the store cannot be
    opened, or if a promoted version cannot be served."""
    if not config.versions.store:
        return None
    try:
        from headway.server.versions.keepers import VersionKeepers
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"versions.store is set, and {missing.name} is not installed: "
            "pip install 'headway[jobs]'"
        ) from missing
    return VersionKeepers(config, log)


def version_teller(
    keepers: "VersionKeepers",
) -> Callable[[Tenant], Awaitable[Mapping[str, Any] | None]]:
    """A function for the live page. It returns the versions of the model on trial, else of the
    first model; None if the tenant may not see them, or if the store cannot be read now or soon."""
    from headway.server.versions.routes import listed, may_see
    from headway.store.database import StoreError

    async def told(tenant: Tenant) -> Mapping[str, Any] | None:
        if not may_see(keepers.service, tenant):
            return None
        tried = next((each for each in keepers if each.live), keepers.of_model(""))
        try:
            async with asyncio.timeout(PATIENCE):
                return await listed(tried)
        except (StoreError, TimeoutError):
            return None

    return told


def install_versions(app: DocumentedApp, keepers: "VersionKeepers", bodies: BodyReader) -> None:
    """Add the paths and the metrics, before the middleware that every application has."""
    from headway.server.versions.routes import BODIES, version_routes

    app.include_router(version_routes(keepers, bodies))
    app.state.registry.register(keepers)
    others = app.models

    def models() -> dict[str, Any]:
        listed = [(each, "validation") for each in BODIES]
        _, mine = models_json_schema(listed, ref_template=REF)  # type: ignore[arg-type]
        return {**others(), **mine["$defs"]}

    app.models = models
