"""How much one request may ask for. The settings of `server.limits` have these fields."""

from typing import Protocol


class RequestLimits(Protocol):
    """The most that is accepted; a request that has more is answered 400."""

    @property
    def prompts(self) -> int:
        """Of one /v1/completions call."""
        ...

    @property
    def inputs(self) -> int:
        """Texts of one call of vectors."""
        ...

    @property
    def messages(self) -> int:
        """Of one chat."""
        ...

    @property
    def n(self) -> int:
        """Choices of one prompt."""
        ...

    @property
    def stops(self) -> int:
        """Stop strings, and stop token ids."""
        ...

    @property
    def stop_chars(self) -> int:
        """Characters of a stop string or a bad word."""
        ...

    @property
    def schema_bytes(self) -> int:
        """Bytes of a grammar's text."""
        ...
