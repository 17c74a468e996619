"""One of the requests that a key may have at once."""

from headway.server.config.tenant import Tenant
from headway.server.intake.keys import KeyRing


class Permit:
    """It is over when whoever took it ends it, once or more often."""

    def __init__(self, keys: KeyRing, tenant: Tenant) -> None:
        """After `KeyRing.begin` has said yes."""
        self._keys, self._tenant, self._open = keys, tenant, True

    def end(self) -> None:
        if self._open:
            self._open = False
            self._keys.end(self._tenant)
