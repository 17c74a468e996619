"""Permit: one of the concurrent requests that a key may have."""

from headway.server import clock
from headway.server.config.tenant import Tenant
from headway.server.intake.keys import KeyRing
from headway.server.protocol.problem import Problem
from headway.server.protocol.retry_after import LEAST, jittered


class Permit:
    """Holds one concurrent request of a key until it is released."""

    def __init__(self, keys: KeyRing, tenant: Tenant) -> None:
        """Create it only after `KeyRing.begin` has returned True."""
        self._keys, self.tenant, self._open = keys, tenant, True

    def release(self) -> None:
        """Give the permit back. Only the first call counts."""
        if self._open:
            self._open = False
            self._keys.end(self.tenant)


def permit(keys: KeyRing, tenant: Tenant) -> Permit:
    """A permit for one more request of this tenant. Raises Problem if its key is at a limit."""
    if wait := keys.ask(tenant, clock.now()):
        message = "this key's limit per minute is reached"
        raise Problem(429, message, code="rate_limit_exceeded", retry=jittered(wait / 1e9))
    if not keys.begin(tenant):
        message = "this key has as many requests at once as it may"
        raise Problem(429, message, code="concurrency_limit_exceeded", retry=jittered(LEAST))
    return Permit(keys, tenant)
