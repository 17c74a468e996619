"""Requests and tokens by API key. The configuration bounds the number of keys."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from headway.server.observe.metrics.families import Families


class Keys:
    """Counts requests and tokens by the name of the API key."""

    def __init__(self) -> None:
        self._requests = Counter[tuple[str, str]]()
        self._tokens = Counter[tuple[str, str]]()

    def accepted(self, key: str, requests: int) -> None:
        """Count requests of a key that were accepted. Requests without a key are not counted."""
        if key:
            self._requests[key, "accepted"] += requests

    def refused(self, key: str, requests: int) -> None:
        """Count requests of a key that were refused. Requests without a key are not counted."""
        if key:
            self._requests[key, "refused"] += requests

    def left(self, key: str, prompt: int, answer: int) -> None:
        """Count the tokens of a call that has ended."""
        if key:
            self._tokens[key, "prompt"] += prompt
            self._tokens[key, "answer"] += answer

    def collect(self, families: Families) -> Iterator[Metric]:
        """The metric families of the keys."""
        yield families.counter(
            "headway_key_requests",
            "Requests of a key: accepted or refused at admission.",
            self._requests,
            ("key", "answer"),
        )
        yield families.counter(
            "headway_key_tokens",
            "Tokens of a key's ended calls. A prompt counts once for all its choices.",
            self._tokens,
            ("key", "kind"),
        )
