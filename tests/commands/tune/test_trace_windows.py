"""Windows of recorded traffic: disjoint, equally many arrivals each, each from time 0 on."""

from hypothesis import given
from hypothesis import strategies as st

from headway.commands.tune.trace_windows import split_windows
from headway.traffic.arrival_process import ArrivalProcess, Lengths
from headway.traffic.endpoint import Endpoint
from headway.traffic.endpoint_traffic import EndpointTraffic
from headway.traffic.recorded_trace import RecordedTrace
from headway.traffic.trace import Arrival


def recorded(name, count, weight=1.0, rate=0.0):
    arrivals = [Arrival(10 * k + 3, k + 1, 1) for k in range(count)]
    endpoint = Endpoint(name, "", "", 0)
    return EndpointTraffic(endpoint, RecordedTrace(arrivals, name, 1.0), weight, rate)


@given(st.integers(8, 200), st.integers(1, 4), st.integers(2, 400))
def test_windows_share_no_request_and_begin_at_zero(count, parts, requests):
    windows = split_windows([recorded("chat", count)], parts, requests)
    taken = [each.source.arrivals for (each,) in windows]
    numbers = [arrival.prompt for part in taken for arrival in part]
    assert numbers == sorted(set(numbers)) and len(taken) == parts
    assert all(part[0].at == 0 and 2 <= len(part) <= requests for part in taken)
    if requests >= count:
        assert numbers == list(range(1, count + 1))


def test_a_recorded_endpoint_gets_its_share_and_drawn_traffic_is_unchanged():
    drawn = EndpointTraffic(
        Endpoint("voice", "", "", 0), ArrivalProcess(Lengths(1, 1), Lengths(1, 1))
    )
    given = [recorded("chat", 400, weight=2.0), drawn, recorded("own", 400, rate=3.0)]
    window = split_windows(given, 4, 60)[2]
    assert [len(window[at].source.arrivals) for at in (0, 2)] == [40, 60]
    assert window[0].source.arrivals[0].prompt == 201
    assert window[1] is drawn
