"""`keys`: API keys. The file holds only their hashes.

The hash is a single SHA-256 without salt, on purpose. A slow, salted hash such as scrypt protects
passwords, which people invent and attackers can guess. Our keys are 256 random bits: they cannot be
guessed, and no two are equal, so there is nothing for a salt to hide. scrypt would cost tens of
milliseconds and megabytes per request, even for wrong keys, so anyone could stall the server.
"""

from collections.abc import Collection
from hashlib import sha256
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

from headway.core.policies.fairly import MOST_WEIGHT
from headway.errors import SettingError
from headway.server.config.ledger.caps import CapSettings
from headway.server.config.ledger.ledger import LedgerSettings
from headway.server.config.sections.lanes import LaneName
from headway.server.config.sections.prices import PriceSettings
from headway.server.config.sections.section import Number, Section, SettingAtError, Some
from headway.server.config.tenant import Tenant

PREFIX = "hw-"  # lets scanners recognise a leaked key
SHOWN = 8  # hexadecimal digits of a hash that are shown
_HEX = frozenset("0123456789abcdef")


def _hashed(value: object) -> str:
    """A valid hash. The error does not repeat the value: it may be a key."""
    if isinstance(value, str) and len(value) == 64 and set(value.lower()) <= _HEX:
        return value.lower()
    raise SettingError(
        "a hash is 64 hexadecimal digits in quotes, as `headway config key` prints it; "
        "never write the key itself"
    )


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$")]
Rate = Annotated[int, Field(ge=0), Number]


class KeySettings(Section):
    """One entry of the `keys` section."""

    name: Annotated[Name, Field(description="The key's name in logs and metrics.")]
    sha256: Annotated[
        str,
        BeforeValidator(_hashed),
        PlainSerializer(lambda hashed: f"{hashed[:SHOWN]}..."),
        WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
        Field(
            description="SHA-256 of the key, hexadecimal, from `headway config key`.", repr=False
        ),
    ]
    tenant: Annotated[
        Name | Literal[""],
        Field(
            description="Who the key belongs to. Keys of one tenant share a prefix cache "
            "and may cancel each other's requests. Default: the key's name.",
        ),
    ] = ""
    lanes: Annotated[
        tuple[LaneName, ...], Some, Field(description="Lanes that the key may use. Default: all.")
    ] = ()
    models: Annotated[
        tuple[str, ...],
        Some,
        Field(
            description="Models and routes that the key may use, by their names. A route asks its "
            "own models for it. Default: all."
        ),
    ] = ()
    default_lane: Annotated[
        str,
        Field(
            description="Lane of the key's requests that name none. Default: the server's, "
            "or the key's first lane."
        ),
    ] = ""
    weight: Annotated[
        int,
        Number,
        Field(
            ge=1,
            le=MOST_WEIGHT,
            description="The tenant's share of each lane, relative to the other tenants' weights.",
        ),
    ] = 1
    requests_per_minute: Annotated[Rate, Field(description="Requests per minute; 0: no limit.")] = 0
    tokens_per_minute: Annotated[
        Rate,
        Field(
            description="Tokens per minute of prompts and answers; unused ones are given "
            "back. 0: no limit."
        ),
    ] = 0

    concurrent: Annotated[
        Rate,
        Field(description="Requests at once, each from its first byte to its last; 0: no limit."),
    ] = 0

    caps: CapSettings = CapSettings()
    admin: Annotated[
        bool,
        Field(
            description="Whether the key may propose, try, promote and roll back versions of the "
            "configuration (/v1/versions)."
        ),
    ] = False

    def check(self) -> None:
        if self.lanes and self.default_lane and self.default_lane not in self.lanes:
            raise SettingError(f"its default_lane {self.default_lane!r} is not one of its lanes")
        for lane in self.caps.lanes:
            if self.lanes and lane not in self.lanes:
                raise SettingError(f"its caps are for {lane!r}, which is not one of its lanes")

    def to_tenant(self, lanes: Collection[str], default_lane: str) -> Tenant:
        """The key's tenant, with defaults filled in. lanes: all lanes of the server.

        The salt is the tenant's name. The cache's own key, drawn at each start, makes the chain
        unguessable.
        """
        allowed = frozenset(self.lanes or lanes)
        default = self.default_lane or default_lane
        if default not in allowed:
            default = self.lanes[0]
        models = frozenset(self.models) or None
        return Tenant(
            self.owner, self.name, allowed, default, self.owner, models, is_admin=self.admin
        )

    @property
    def owner(self) -> str:
        """The name of the key's tenant."""
        return self.tenant or self.name


def weights_of(keys: Collection[KeySettings], *, count: bool) -> dict[str, int]:
    """The weight of each tenant. Raises SettingAtError if a tenant's keys have different weights,
    or if a weight is set but has no effect. count: whether weights have an effect."""
    weights = dict[str, int]()
    for at, key in enumerate(keys):
        if (known := weights.setdefault(key.owner, key.weight)) != key.weight:
            why = f"the keys of tenant {key.owner} have different weights: {known} and {key.weight}"
            raise SettingAtError(("keys", at, "weight"), why)
        if key.weight != 1 and not count:
            why = "engine.strategy has fair: false, and then no weight counts"
            raise SettingAtError(("keys", at, "weight"), why)
    return weights


def check_caps(key: KeySettings, at: int, prices: PriceSettings, ledger: LedgerSettings) -> None:
    """Raise SettingAtError if a key's caps on money cannot be enforced. at: the key's index."""
    if key.caps.cap_money and not ledger.url:
        why = f"{key.name}: a cap on money needs ledger.url, where its total is kept"
        raise SettingAtError(("keys", at, "caps"), why)
    if key.caps.cap_money and not prices.charges_tokens:
        why = f"{key.name}: a cap on money needs prices of tokens: all requests would cost nothing"
        raise SettingAtError(("keys", at, "caps"), why)


def digest(key: str) -> bytes:
    """The SHA-256 of a key, which identifies it."""
    return sha256(key.encode("utf-8", "replace")).digest()


def new_key(name: str) -> str:
    """Make a random key, and return it with its entry for the file, as text to print once."""
    key = PREFIX + token_urlsafe(32)
    try:
        entry = KeySettings(name=name, sha256=digest(key).hex())
    except ValidationError:
        raise SettingError(
            f"{name!r} cannot name a key; use up to 64 letters, digits and _.@-"
        ) from None
    return (
        f"The key, shown this once; give it to its caller:\n\n  {key}\n\n"
        f'Under `keys:` in the file:\n\n  - name: {entry.name}\n    sha256: "{entry.sha256}"'
    )
