"""A permit: one of the requests that a key may have at once."""

from headway.server.config.tenant import Tenant
from headway.server.intake.keys import KeyRing


class Permit:
    """Ends when it is released; releasing it again does nothing."""

    def __init__(self, keys: KeyRing, tenant: Tenant) -> None:
        """Made when `KeyRing.begin` has returned True."""
        self._keys, self._tenant, self._open = keys, tenant, True

    def release(self) -> None:
        """Give the permit back. Only the first call counts."""
        if self._open:
            self._open = False
            self._keys.end(self._tenant)
