"""Sessions of visitors who have signed in. The cookie is a random token and never has a key."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe

from headway.server.config.durations import SECOND

LASTS = 12 * 3_600 * SECOND  # nanoseconds
MOST = 1_024  # sessions
MOST_OF_KEY = 16  # sessions per key: a key that signs in often ends only its own sessions


@dataclass(frozen=True, slots=True)
class _Session:
    key: bytes  # the digest of the key that signed in, as the configuration has it
    until: int  # nanoseconds


class Sessions:
    """The open sessions. They are in memory, so a restart signs everybody out.

    A session is looked up by the digest of its token, so the lookup's timing reveals nothing about
    existing tokens. The key ring is asked each time what the session's key may see.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._sessions: dict[bytes, _Session] = {}  # by the token's digest, the oldest first

    def open(self, key: bytes) -> str:
        """Open a session for the key with this digest. Returns the session's token."""
        self._forget_expired()
        mine = [token for token, each in self._sessions.items() if each.key == key]
        while len(mine) >= MOST_OF_KEY:
            del self._sessions[mine.pop(0)]
        while len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]
        token = token_urlsafe(32)
        self._sessions[_digest(token)] = _Session(key, self._now() + LASTS)
        return token

    def key_of(self, token: str) -> bytes:
        """The digest of the key that signed in; empty if there is no such session."""
        found = self._sessions.get(_digest(token))
        return found.key if found and self._now() < found.until else b""

    def close(self, token: str) -> None:
        """End the session with this token, if there is one."""
        self._sessions.pop(_digest(token), None)

    def __len__(self) -> int:
        return len(self._sessions)

    def _forget_expired(self) -> None:
        now = self._now()
        for token in [token for token, each in self._sessions.items() if now >= each.until]:
            del self._sessions[token]


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()
