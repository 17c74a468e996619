"""OwnFlow: uvicorn's flow control, which keeps nothing of the request that reads on."""

from asyncio import Transport
from contextvars import copy_context

from uvicorn.protocols.http.flow_control import FlowControl


class OwnFlow(FlowControl):
    """Reads on in the connection's own context.

    asyncio keeps the context in which reading was resumed for as long as the connection reads. That
    of a request would keep what it refers to: the call, with its prompt, of the last large body.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._context = copy_context()

    def resume_reading(self) -> None:
        self._context.run(super().resume_reading)
