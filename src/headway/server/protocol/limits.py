"""RequestLimits: how much one request may ask for. `server.limits` has these fields."""

from typing import Protocol


class RequestLimits(Protocol):
    """The most that is accepted. A request with more is answered with 400."""

    @property
    def prompts(self) -> int:
        """Prompts of one /v1/completions call."""
        ...

    @property
    def inputs(self) -> int:
        """Texts of one call for vectors."""
        ...

    @property
    def messages(self) -> int:
        """Messages of one chat."""
        ...

    @property
    def n(self) -> int:
        """Choices of one prompt."""
        ...

    @property
    def stops(self) -> int:
        """Stop strings; also stop token ids, and bad words."""
        ...

    @property
    def stop_chars(self) -> int:
        """Characters of a stop string or a bad word."""
        ...

    @property
    def schema_bytes(self) -> int:
        """Bytes of a grammar's text."""
        ...
