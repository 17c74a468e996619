"""Who asks, by the name of their key: as many as the configuration has."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from headway.server.observe.metrics.families import Families


class Keys:
    """Requests and tokens per API key."""

    def __init__(self) -> None:
        self._requests = Counter[tuple[str, str]]()
        self._tokens = Counter[tuple[str, str]]()

    def asked(self, key: str, requests: int) -> None:
        """Count requests of a key that were accepted. Requests without a key are not counted."""
        if key:
            self._requests[key, "accepted"] += requests

    def refused(self, key: str, requests: int) -> None:
        """Count requests of a key that were refused. Requests without a key are not counted."""
        if key:
            self._requests[key, "refused"] += requests

    def left(self, key: str, prompt: int, answer: int) -> None:
        """A call is over, and so many tokens are on its bill."""
        if key:
            self._tokens[key, "prompt"] += prompt
            self._tokens[key, "answer"] += answer

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of this part."""
        yield families.counter(
            "headway_key_requests",
            "Requests of a key, by what the door has said: accepted, refused.",
            self._requests,
            ("key", "answer"),
        )
        yield families.counter(
            "headway_key_tokens",
            "Tokens of a key's calls that are over; a prompt counts once for all its choices.",
            self._tokens,
            ("key", "kind"),
        )
