"""The metrics behind /metrics. docs/metrics.md lists them.

Metrics have vLLM's names, for dashboards and autoscalers that know them; those by lane are
`headway_*`. Everything is counted in plain integers on the event loop's thread, once per step and
per request. prometheus_client writes the metrics out at each scrape, from the server's own
registry.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric

from headway.server import clock
from headway.server.answering.refusal import Refusal
from headway.server.intake.model import Model
from headway.server.intake.service import Service
from headway.server.observe.metrics.families import Families
from headway.server.observe.metrics.keys import Keys
from headway.server.observe.metrics.model import ModelMetrics
from headway.server.observe.metrics.requests import Requests
from headway.server.observe.metrics.routes import RouteMetrics

NO_MODEL = ""  # the label of requests that were refused before their model was known


class SingleFamily(NamedTuple):
    """A registry of one family, so that the family can be written by itself."""

    family: Metric

    def collect(self) -> tuple[Metric]:
        """The one family."""
        return (self.family,)


class Unrouted:
    """Counts requests that were refused before it was known which of several models they meant."""

    def __init__(self) -> None:
        self._families = Families(NO_MODEL)
        self._keys, self._requests = Keys(), Requests(())

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal."""
        self._keys.refused(refusal.arrival.tenant.key, refusal.count)
        self._requests.refused(refusal.lane, refusal.problem.code, refusal.count)

    def collect(self) -> Iterator[Metric]:
        """The families that count such requests."""
        yield from self._keys.collect(self._families)
        yield from self._requests.refusals(self._families)


class Metrics:
    """All metrics of a server."""

    def __init__(self, models: Sequence[ModelMetrics], unrouted: Sequence[Unrouted] = ()) -> None:
        self.models, self._unrouted = models, unrouted
        self.registry = CollectorRegistry()  # others may add theirs
        self.registry.register(self)
        self.refreshing: list[Callable[[], Awaitable[object]]] = []  # asked before each scrape
        for own in (ProcessCollector, PlatformCollector, GCCollector):
            own(registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """All families of the models, as they are now."""
        if len(self.models) == 1 and not self._unrouted:
            yield from self.models[0].collect()
        else:
            models = [each.collect() for each in self.models]
            yield from merged([*models, *[each.collect() for each in self._unrouted]])

    async def text(self) -> bytes:
        """All metrics in Prometheus' text format.

        Each family is written by itself, and streams get their tokens in between. Writing all at
        once would block the event loop for 8 ms.
        """
        await asyncio.gather(*[refresh() for refresh in self.refreshing])
        written = []
        for family in self.registry.collect():
            written.append(generate_latest(SingleFamily(family)))
            await asyncio.sleep(0)
        return b"".join(written)


def merged(collected: Iterable[Iterable[Metric]]) -> Iterator[Metric]:
    """Merge families of the same name into one with all their samples. The inputs do not change."""
    found: dict[str, Metric] = {}
    for family in chain.from_iterable(collected):
        one = found.get(family.name)
        if not one:
            one = found[family.name] = Metric(family.name, family.documentation, family.type)
        one.samples += family.samples
    yield from found.values()


def attach_metrics(service: Service) -> Metrics:
    """Make the metrics of a server. They count from now on."""
    unrouted = [] if service.models.is_one else [Unrouted()]
    service.unrouted += [each.refused for each in unrouted]
    metrics = Metrics([_attached(each) for each in service.models], unrouted)
    if service.routes:
        metrics.registry.register(RouteMetrics(service.routes.decisions))
    return metrics


def _attached(model: Model) -> ModelMetrics:
    config, engine = model.config, model.engine
    size = config.engine.tokens_per_block
    slots = config.policies.slots or config.engine.slots
    metrics = ModelMetrics(model.name, config.core_lanes, engine, size, clock.now, slots)
    model.sent, model.loaded = metrics.sent, metrics.loaded
    model.admission.settled = metrics.settled
    model.watch(metrics)
    engine.events = metrics.events
    return metrics
