"""`jobs`: where files and jobs are stored, how jobs run, and which endpoints hear of their end.
`versions`: where versions of the configuration are stored."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from secrets import token_bytes
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints

from headway.errors import SettingError, did_you_mean, first_line
from headway.server.config.durations import SECOND, Limit
from headway.server.config.sections.section import Count, Section, SettingAtError, Some
from headway.store.shown_url import without_password

DAY = 86_400 * SECOND
PREFIX = "whsec_"  # Standard Webhooks
EVENTS = frozenset(
    f"{kind}.{end}"
    for kind in ("batch", "job")
    for end in ("completed", "failed", "expired", "cancelled")
)
ANY = "*"  # at the end of a URL


def _secret(value: object) -> str:
    """A valid secret. The error does not repeat it."""
    why = f"a secret is {PREFIX} and then 24 to 64 bytes in base64"
    if not isinstance(value, str) or not value.startswith(PREFIX):
        raise SettingError(why)
    try:
        key = b64decode(value.removeprefix(PREFIX), validate=True)
    except NotBase64:
        raise SettingError(why) from None
    if not 24 <= len(key) <= 64:
        raise SettingError(f"{why}; this one has {len(key)}")
    return value


def new_secret() -> str:
    """A new random secret."""
    return PREFIX + b64encode(token_bytes(32)).decode()


class WebhookSettings(Section):
    """An endpoint that is told how jobs end."""

    url: Annotated[
        str,
        StringConstraints(pattern=r"^https?://[^/\s*@]+(/[^\s*]*)?\*?$"),
        Field(
            description="Where to POST. With a * at the end, callers choose a URL that begins so, "
            "with X-Headway-Callback, and it is told of their job only."
        ),
    ]
    secret: Annotated[
        str,
        BeforeValidator(_secret),
        PlainSerializer(lambda secret: f"{PREFIX}..."),
        Field(
            description="The key that signs each request (standard-webhooks.com), from "
            "`headway config webhook-secret`.",
            repr=False,
        ),
    ]
    events: Annotated[
        tuple[str, ...],
        Some,
        Field(
            description="Of batch.completed, .failed, .expired, .cancelled, and the same of job. "
            "Default: all."
        ),
    ] = ()

    def check(self) -> None:
        if strange := set(self.events) - EVENTS:
            name = sorted(strange)[0]
            near = did_you_mean(name, sorted(EVENTS))
            raise SettingAtError(("events",), f"there is no event {name!r}{near}")
        try:
            parts = urlsplit(self.url.removesuffix(ANY))
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise SettingAtError(("url",), f"it cannot be called: {first_line(error)}") from None
        if not host or port == 0:
            raise SettingAtError(("url",), f"it names no {'port' if host else 'host'}")
        if self.is_chosen and not self.url.removesuffix(ANY).endswith("/"):
            raise SettingAtError(("url",), "before the * comes a /, so that it names one host")

    @property
    def is_chosen(self) -> bool:
        """Whether callers choose the rest of the URL."""
        return self.url.endswith(ANY)

    def takes(self, event: str) -> bool:
        """Whether the endpoint is told of this event."""
        return not self.events or event in self.events

    def matches(self, url: str) -> bool:
        """Whether the URL is the endpoint's own, or one that callers may choose there."""
        return url == self.url or (self.is_chosen and url.startswith(self.url.removesuffix(ANY)))


class JobSettings(Section):
    """The `jobs` section. Without a store there are no files, batches and jobs."""

    store: Annotated[
        str,
        PlainSerializer(without_password),
        Field(
            description="Files and jobs are kept here: a file of SQLite, which is made if there is "
            "none, or postgresql://USER@HOST/NAME. Default: there are no jobs."
        ),
    ] = ""
    lane: Annotated[
        str,
        Field(
            description="The lane in which they run. Default: offline, or the lane that has the "
            "highest priority number."
        ),
    ] = ""
    at_once: Annotated[
        Count, Field(description="Requests of jobs that are in the engine or wait for it.")
    ] = 64
    file_bytes: Annotated[Count, Field(description="Size of one file.")] = 200 << 20
    tenant_bytes: Annotated[
        Count,
        Field(
            description="Size of all files of a tenant and of the requests of its open jobs; what "
            "would exceed it gets 429."
        ),
    ] = 10 << 30
    lines: Annotated[Count, Field(description="Requests of one batch.")] = 50_000
    keep: Annotated[
        Limit,
        Field(description="How long files and results are kept, if the caller does not say."),
    ] = 30 * DAY
    webhooks: Annotated[
        tuple[WebhookSettings, ...],
        Field(description="Endpoints that are told how jobs end. Default: none."),
    ] = ()

    def check(self) -> None:
        """Check that each URL and event has only one endpoint, so the signing secret is clear."""
        known = set[tuple[str, str]]()
        for at, each in enumerate(self.webhooks):
            for event in filter(each.takes, sorted(EVENTS)):
                if (each.url, event) in known:
                    why = f"{each.url} comes twice for {event}: give each event one secret"
                    raise SettingAtError(("webhooks", at, "url"), why)
                known.add((each.url, event))


class VersionSettings(Section):
    """The `versions` section. Without a store the file's configuration is the only one."""

    store: Annotated[
        str,
        PlainSerializer(without_password),
        Field(
            description="Versions of the strategy and the lanes are kept here: a file of SQLite or "
            "postgresql://USER@HOST/NAME; it may be the one of jobs. Default: there are none."
        ),
    ] = ""
