"""The figures of each tenant of an endpoint, from rows made by hand."""

from dataclasses import replace

from headway.core.request import NEVER, Finish
from headway.figures.tenant_figures import tenant_figures
from tests.figures.test_lane_figures import outcome, request


def test_each_tenant_has_figures_of_its_own_requests_in_the_lane():
    rows = [replace(request(f"a{i}", ttft=4 + i), tenant="acme") for i in range(10)]
    rows.append(replace(request("b1", ttft=NEVER, finish=Finish.CANCELLED), tenant="bell"))
    rows.append(replace(request("b2", lane="voice"), tenant="bell"))
    found = tenant_figures(outcome(rows), "chat")
    assert list(found) == ["acme", "bell"]
    acme, bell = found.values()
    assert (acme.requests, acme.good, acme.attainment) == (10, 10, 1.0)
    assert (acme.tokens, acme.queue_p50, acme.queue_p95) == (100, 4, None)
    assert (bell.requests, bell.attainment, bell.tokens) == (1, 0.0, 7)


def test_a_lane_without_tenants_has_no_tenant_figures():
    assert tenant_figures(outcome([request("r1")]), "chat") == {}
