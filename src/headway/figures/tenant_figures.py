"""What each tenant of an endpoint got (TenantFigures)."""

from dataclasses import dataclass

from headway.core.ledger import RequestRow
from headway.figures.percentile import Quantile, percentile
from headway.runs.outcome import Outcome


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant of one endpoint in a run."""

    requests: int  # requests that ended, with any finish
    good: int
    tokens: int  # of the tenant's prompts and answers
    queue_p50: Quantile
    queue_p95: Quantile

    @property
    def attainment(self) -> float:
        """Share of the tenant's requests that are good."""
        return self.good / self.requests


def tenant_figures(outcome: Outcome, lane: str) -> dict[str, TenantFigures]:
    """The figures of each tenant of the lane, by name. Empty if its requests have no tenants."""
    by_tenant = dict[str, list[RequestRow]]()
    for row in outcome.requests:
        if row.lane == lane and row.tenant:
            by_tenant.setdefault(row.tenant, []).append(row)
    return {tenant: _figures(by_tenant[tenant]) for tenant in sorted(by_tenant)}


def _figures(rows: list[RequestRow]) -> TenantFigures:
    queue = [row.queue for row in rows]
    return TenantFigures(
        requests=len(rows),
        good=sum([row.good for row in rows]),
        tokens=sum([row.prompt + row.generated for row in rows]),
        queue_p50=percentile(queue, 50),
        queue_p95=percentile(queue, 95),
    )
