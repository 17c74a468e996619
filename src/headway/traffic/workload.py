"""The requests that every strategy is offered (Workload)."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headway.core.request import Request
from headway.costing.request_spec import RequestSpec, Truncation
from headway.traffic.prompts import Prompts

WARM_UP = 0.1  # of a comparison's window


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests that every strategy is offered, at the same moments."""

    requests: tuple[Request, ...]  # by arrival, nanoseconds from the beginning of the run
    window: int  # nanoseconds in which all requests arrive
    time_scale: float  # seconds of the trace per second of the run
    load: float  # predicted device-seconds per second, at full batches
    trace_ends: bool  # a trace was used to its end
    cut: Truncation = Truncation()
    # By request id. If enforced, a later request supersedes an earlier one with an equal key.
    keys: Mapping[str, Hashable] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Requests per second, of all endpoints together."""
        return len(self.requests) * 1e9 / self.window

    @property
    def warm_up(self) -> int:
        """Nanoseconds at the beginning whose requests are excluded from the figures.

        0 if all requests arrive at the beginning.
        """
        return round(self.window * WARM_UP) if any(each.arrived for each in self.requests) else 0

    def count(self, lane: str) -> int:
        """How many requests this lane has."""
        return sum(request.lane == lane for request in self.requests)


def with_prompts(specs: Iterable[RequestSpec], prompts: Prompts) -> tuple[Request, ...]:
    """The requests with prompts. Without stop tokens, each answer is as long as its spec says."""
    requests = []
    for id, spec in _named(specs):
        prompt = prompts.shared(spec) if spec.blocks else prompts.draw(spec.lane, spec.prompt)
        made = Request(id, prompt, spec.answer, spec.at, spec.lane)
        if spec.tenant:  # tenants share no prefixes, as on a server
            made = replace(made, tenant=spec.tenant, salt=spec.tenant)
        requests.append(made)
    return tuple(requests)


def supersede_keys(specs: Iterable[RequestSpec]) -> dict[str, Hashable]:
    """The supersede keys by request id: tenant and key. Requests without a key are left out."""
    return {id: (spec.tenant, spec.supersede) for id, spec in _named(specs) if spec.supersede}


def _named(specs: Iterable[RequestSpec]) -> Iterator[tuple[str, RequestSpec]]:
    """Yield each spec with its request id. Ids are numbered within each lane, from 1."""
    numbers: dict[str, int] = {}
    for spec in specs:
        number = numbers[spec.lane] = numbers.get(spec.lane, 0) + 1
        yield f"{spec.lane}-{number}", spec
