"""A webhook's endpoint may ask for a longer pause, as a number of seconds or as a date."""

import time

import pytest
from httpx2 import Response

from headway.server.jobs.webhooks import PAUSES, _retry_after, again

NOW = 1_445_412_480  # Wed, 21 Oct 2015 07:28:00 GMT


@pytest.fixture
def in_tokyo():
    """The machine's time zone is Japan's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("", 0),
        ("0", 0),
        ("90", 90),
        ("9" * 400, PAUSES[-1]),
        ("-5", 0),
        ("1.5", 0),
        ("²", 0),  # isdecimal is false, but isdigit is true
        ("٣", 0),  # isdecimal is true
        ("Wed, 21 Oct 2015 07:29:30 GMT", 90),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", PAUSES[-1]),
        ("Wed, 21 Oct 99999 07:29:30 GMT", 0),
        ("Wed Oct 21 07:29:30 2015", 90),  # a form of HTTP's first years; it is in UTC, too
        ("tomorrow", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value, seconds, in_tokyo):
    answer = Response(503, headers=[(b"retry-after", value.encode())])
    assert _retry_after(answer, NOW) == seconds


def test_a_pause_is_never_shorter_than_in_the_schedule():
    first, last = PAUSES[0], PAUSES[-1]
    assert first <= again(1, NOW, 1) - NOW <= 2 * first
    assert again(1, NOW, last) - NOW == last
    assert again(len(PAUSES) + 1, NOW, last) is None


def test_every_pause_of_the_schedule_is_used_before_an_endpoint_is_given_up():
    assert again(len(PAUSES), 1_000) >= 1_000 + PAUSES[-1]
    assert again(len(PAUSES) + 1, 1_000) is None
