"""An endpoint and the source of its requests (EndpointTraffic)."""

from dataclasses import dataclass

from headway.strategies.window import Window
from headway.traffic.arrival_process import ArrivalProcess
from headway.traffic.endpoint import Endpoint
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.tenants import NOBODY, Tenants


@dataclass(frozen=True, slots=True)
class EndpointTraffic:
    """An endpoint and the source of its requests."""

    endpoint: Endpoint
    source: ArrivalProcess | RecordedTrace
    weight: float = 1.0  # its share of the arrival rate, relative to the other weights
    rate: float = 0.0  # requests per second; 0: by weight
    window: Window = Window()  # unset: a share of its budget
    tenants: Tenants = NOBODY  # the tenants that send its requests

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.endpoint.name

    @property
    def is_recorded(self) -> bool:
        """Whether its requests come from a trace."""
        return isinstance(self.source, RecordedTrace)

    @property
    def can_enforce(self) -> bool:
        """Whether a server could drop any of its requests: the endpoint has a limit for that, or
        its trace says which request supersedes which."""
        source = self.source
        keys = source.arrivals if isinstance(source, RecordedTrace) else ()
        return self.endpoint.can_enforce or any(each.supersede for each in keys)

    @property
    def is_backlog(self) -> bool:
        """Whether all its requests are there at the beginning."""
        return isinstance(self.source, ArrivalProcess) and self.source.at_once
