"""The key ring: which tenant a key belongs to, and how much each key has used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hmac import compare_digest

from headway.core.request import NEVER
from headway.server.config.sections.keys import KeySettings, digest
from headway.server.config.tenant import Tenant
from headway.server.intake.access_record import access_record
from headway.server.intake.limits.rate_limits import RateLimit
from headway.server.protocol.problem import Problem


@dataclass(frozen=True, slots=True)
class Denied:
    """No key, or an unknown one; answered with 401."""

    reason: str


_ACTING: ContextVar[Tenant | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(tenant: Tenant) -> Iterator[None]:
    """Within the block, this task's requests to the application are this tenant's, without a
    key."""
    token = _ACTING.set(tenant)
    try:
        yield
    finally:
        _ACTING.reset(token)


def acting_tenant() -> Tenant | None:
    """The tenant that this task acts as; None: the client's own key decides."""
    return _ACTING.get()


class KeyRing:
    """Finds the tenant of a key and counts what each key uses. Without keys the server is open:
    every client is the same nameless tenant."""

    def __init__(
        self, keys: Sequence[KeySettings], lanes: Iterable[str], default_lane: str
    ) -> None:
        lanes = frozenset(lanes)
        self._open = Tenant("", "", lanes, default_lane, "")
        self._known = [
            (bytes.fromhex(key.sha256), key.to_tenant(lanes, default_lane)) for key in keys
        ]
        self._limits = {
            key.name: RateLimit(key.requests_per_minute, key.tokens_per_minute, key.concurrent)
            for key in keys
        }

    def replace(self, keys: Sequence[KeySettings], lanes: Iterable[str], default_lane: str) -> None:
        """Replace the keys. Running requests are not affected. The limit of a removed key is kept
        if any of its requests is running."""
        fresh = KeyRing(keys, lanes, default_lane)
        limits = {name: new.after(self._limits.get(name)) for name, new in fresh._limits.items()}
        running = {name: limit for name, limit in self._limits.items() if limit.is_busy}
        self._known, self._limits = fresh._known, running | limits

    @property
    def is_open(self) -> bool:
        """Whether no keys are configured, so that anyone who reaches the port may use it."""
        return not self._known

    def authenticate(self, header: str) -> Tenant | Denied:
        """The tenant of an Authorization header; an empty string stands for no header.

        The time taken depends on how many keys there are, never on what they contain.
        """
        if tenant := acting_tenant():
            return tenant
        if self.is_open:
            return self._open
        scheme, _, key = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return Denied("no API key: send the header 'Authorization: Bearer YOUR_KEY'")
        return self.of_digest(digest(key.strip())) or Denied(
            "the API key is not one of this server's"
        )

    def of_digest(self, shown: bytes) -> Tenant | None:
        """The tenant of the key with this digest; None: there is no such key, or no longer."""
        found = None
        for known, tenant in self._known:  # all of them, even after one has matched
            found = tenant if compare_digest(known, shown) else found
        return found

    def caller(self, headers: Mapping[str, str]) -> Tenant:
        """The tenant of a request with these headers; notes the key for the access log. Raises
        Problem."""
        found = self.authenticate(headers.get("authorization", ""))
        if isinstance(found, Denied):
            raise Problem(401, found.reason, code="invalid_api_key")
        access_record().key = found.key
        return found

    def tenant_of(self, key: str, tenant: str) -> Tenant | None:
        """This tenant, if its key of this name still exists; None if the key was removed or now
        belongs to another tenant."""
        known = [self._open] if self.is_open else [each for _, each in self._known]
        return next((each for each in known if (each.key, each.name) == (key, tenant)), None)

    def ask(self, tenant: Tenant, now: int) -> int:
        """As RateLimit.ask: 0, or nanoseconds to wait."""
        limit = self._limits.get(tenant.key)
        return limit.ask(now) if limit else 0

    def begin(self, tenant: Tenant) -> bool:
        """As RateLimit.begin. A key without a limit is counted too, since it may get one later."""
        return self._limits.setdefault(tenant.key, RateLimit(0, 0)).begin()

    def rooms(self) -> dict[tuple[str, str], int]:
        """How many more requests may begin now, by tenant and key; a key without such a limit is
        left out."""
        found = {(each.name, each.key): self._limits[each.key].room for _, each in self._known}
        return {who: room for who, room in found.items() if room != NEVER}

    def end(self, tenant: Tenant) -> None:
        """As RateLimit.end."""
        self._limits[tenant.key].end()

    def take(self, tenant: Tenant, tokens: int, now: int) -> int:
        """As RateLimit.take: 0, or nanoseconds to wait."""
        limit = self._limits.get(tenant.key)
        return limit.take(tokens, now) if limit else 0

    def a_minute(self, tenant: Tenant) -> int:
        """Tokens per minute; NEVER: no limit."""
        limit = self._limits.get(tenant.key)
        return limit.a_minute if limit else NEVER

    def give_back(self, tenant: Tenant, tokens: int, now: int) -> None:
        """As RateLimit.give_back."""
        if limit := self._limits.get(tenant.key):
            limit.give_back(tokens, now)
