"""What only the client knows of a request (ClientRow)."""

from typing import NamedTuple

OWN_FAULT = "the client itself: "  # prefix of the error if the client could not send the request


class ClientRow(NamedTuple):
    """One request as its client saw it, beside its RequestRow. Times in nanoseconds."""

    id: str
    lag: int  # from the scheduled arrival until the client began to send the request
    attempts: int  # 1: it was not retried; 0: it was never sent
    status: int  # HTTP status of the last attempt; 0: there was no answer
    error: str  # what went wrong, in one line; empty: nothing did
    asked: int  # tokens asked for
    left: bool  # the caller was made to leave before the end
    gaps: tuple[int, ...]  # between one piece of text and the next

    @property
    def is_clients_fault(self) -> bool:
        """Whether the client itself had no descriptor or port left for the request."""
        return self.error.startswith(OWN_FAULT)
