"""API keys: who asks, what they may, and how much of it. Only hashes of keys are kept.

The hash is one SHA-256 without salt, on purpose. A slow, salted hash (scrypt) protects what
people make up and can be guessed. Our keys are 256 random bits: there is nothing to guess, and
no two are alike for a salt to tell apart. scrypt would cost tens of milliseconds and megabytes
for each request, wrong keys too: a gift to whoever wants to stall a server with two cores.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.sections.lanes import LaneName
from headway.server.config.sections.section import Number, Section
from headway.server.intake.rate_limits import RateLimit

PREFIX = "hw-"  # so that a leaked key is recognised for what it is
SHOWN = 8  # hexadecimal digits of a hash that are shown
_HEX = frozenset("0123456789abcdef")


def _hashed(value: object) -> str:
    """The message never repeats what was given: it may be a key."""
    if isinstance(value, str) and len(value) == 64 and set(value.lower()) <= _HEX:
        return value.lower()
    raise SettingError(
        "a hash is 64 hexadecimal digits in quotes, as `headway config key` prints it; "
        "never write the key itself"
    )


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$")]
Rate = Annotated[int, Field(ge=0), Number]


class KeySettings(Section):
    """A key as the file has it."""

    name: Annotated[Name, Field(description="What logs and metrics call it.")]
    sha256: Annotated[
        str,
        BeforeValidator(_hashed),
        PlainSerializer(lambda digest: f"{digest[:SHOWN]}..."),
        WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
        Field(description="Of the key, hexadecimal, from `headway config key`.", repr=False),
    ]
    tenant: Annotated[
        Name | Literal[""],
        Field(
            description="Whose it is: keys of one tenant share a prefix cache and may cancel each "
            "other's requests. Default: the key's name.",
        ),
    ] = ""
    lanes: Annotated[
        tuple[LaneName, ...], Field(description="Those that it may use. Default: all.")
    ] = ()
    default_lane: Annotated[
        str,
        Field(description="Of requests that name none. Default: the server's, or its first."),
    ] = ""
    requests_per_minute: Annotated[Rate, Field(description="0: no limit.")] = 0
    tokens_per_minute: Annotated[
        Rate, Field(description="Of prompts and answers, less what is not used; 0: no limit.")
    ] = 0

    concurrent: Annotated[
        Rate, Field(description="Requests at once, from their first byte to the last; 0: no limit.")
    ] = 0

    def check(self) -> None:
        if self.lanes and self.default_lane and self.default_lane not in self.lanes:
            raise SettingError(f"its default_lane {self.default_lane!r} is not one of its lanes")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks, and what they may."""

    name: str  # cancel and supersede are scoped to it
    key: str  # the name of the key that was shown, never the key
    lanes: frozenset[str]  # that may be used
    default_lane: str
    salt: str  # root of the prefix cache's chain: tenants cannot probe each other's prompts


@dataclass(frozen=True, slots=True)
class Denied:
    """Nobody whom we know; to be answered 401."""

    reason: str


class KeyRing:
    """Who has which key. Without keys it is open: everybody is the same nameless tenant."""

    def __init__(
        self, keys: Sequence[KeySettings], lanes: Iterable[str], default_lane: str
    ) -> None:
        self._open = Tenant("", "", frozenset(lanes), default_lane, "")
        self._known = [(bytes.fromhex(key.sha256), self.tenant(key)) for key in keys]
        self._limits = {
            key.name: RateLimit(key.requests_per_minute, key.tokens_per_minute, key.concurrent)
            for key in keys
        }

    @property
    def is_open(self) -> bool:
        """No keys are configured: whoever reaches the port may use it."""
        return not self._known

    def authenticate(self, header: str) -> Tenant | Denied:
        """Of an Authorization header, empty if there was none.

        Its time depends on how many keys there are, never on what any of them contains.
        """
        if self.is_open:
            return self._open
        scheme, _, key = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return Denied("no API key: send the header 'Authorization: Bearer YOUR_KEY'")
        digest, found = _digest(key.strip()), None
        for known, tenant in self._known:  # to the end, whoever it is
            found = tenant if compare_digest(known, digest) else found
        return found or Denied("the API key is not one of this server's")

    def ask(self, tenant: Tenant, now: int) -> int:
        """As RateLimit.ask: 0, or nanoseconds to wait."""
        limit = self._limits.get(tenant.key)
        return limit.ask(now) if limit else 0

    def begin(self, tenant: Tenant) -> bool:
        """As RateLimit.begin."""
        limit = self._limits.get(tenant.key)
        return limit.begin() if limit else True

    def end(self, tenant: Tenant) -> None:
        """As RateLimit.end."""
        if limit := self._limits.get(tenant.key):
            limit.end()

    def take(self, tenant: Tenant, tokens: int, now: int) -> int:
        """As RateLimit.take: 0, or nanoseconds to wait."""
        limit = self._limits.get(tenant.key)
        return limit.take(tokens, now) if limit else 0

    def a_minute(self, tenant: Tenant) -> int:
        """Tokens that it may have in one; NEVER: no limit."""
        limit = self._limits.get(tenant.key)
        return limit.a_minute if limit else NEVER

    def give_back(self, tenant: Tenant, tokens: int, now: int) -> None:
        """As RateLimit.give_back."""
        if limit := self._limits.get(tenant.key):
            limit.give_back(tokens, now)

    def tenant(self, key: KeySettings) -> Tenant:
        """Whose it is, with what was left out.

        The salt is the name: the cache's own key, drawn at each start, makes it unguessable.
        """
        name, lanes = key.tenant or key.name, frozenset(key.lanes) or self._open.lanes
        default = key.default_lane or self._open.default_lane
        if default not in lanes:
            default = key.lanes[0]
        return Tenant(name, key.name, lanes, default, name)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "replace")).digest()


def new_key(name: str) -> str:
    """A key that was never seen before, and what the file says of it, to be printed once."""
    key = PREFIX + token_urlsafe(32)
    try:
        entry = KeySettings(name=name, sha256=_digest(key).hex())
    except ValidationError:
        raise SettingError(
            f"{name!r} cannot name a key: up to 64 letters, digits and _.@- are wanted"
        ) from None
    return (
        f"The key, shown this once; give it to its caller:\n\n  {key}\n\n"
        f'Under `keys:` in the file:\n\n  - name: {entry.name}\n    sha256: "{entry.sha256}"'
    )
