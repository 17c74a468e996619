"""The behaviour of callers, as the YAML of a lane sets it."""

from random import Random

import pytest

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.runs.remote.calling import Calling, read_calling
from headway.runs.remote.session import Sessions


def test_headers_the_share_that_cancels_and_sessions_are_read():
    given = {"headers": {"X-Headway-Lane": "chat", "x-count": 3}, "cancel": "3%"}
    assert read_calling(given, "f") == Calling({"X-Headway-Lane": "chat", "x-count": "3"}, 0.03)
    assert read_calling({"cancel": 0.5}, "f").cancel == 0.5
    assert read_calling({}, "f") == Calling()
    given = {"sessions": {"turns": [2, 6], "think": 1.5, "prefix": 200}}
    assert read_calling(given, "f").sessions == Sessions(2, 6, 1.5, 200)
    assert read_calling({"sessions": {"turns": 3}}, "f").sessions == Sessions(3, 3)


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"headers": {"a b": 1}}, "f: headers: 'a b' is no header that can be set"),
        ({"headers": {"Host": "x"}}, "'Host' is no header that can be set"),
        ({"headers": {"x": "a\nb"}}, "x has a value that no header can have"),
        ({"headers": [1]}, "f: headers: a mapping"),
        ({"cancel": "often"}, "f: cancel is 'often', not a number"),
        ({"cancel": 3}, "f: cancel is 3; a share is from 0 to 1"),
        ({"cancel": "130%"}, "a share is from 0 to 1"),
        ({"cancel": "1.2.3%"}, r"cancel is '1\.2\.3%', not a number"),
        ({"cancel": ".%"}, r"cancel is '\.%', not a number"),
        ({"sessions": {"turns": [3, 2]}}, "f: sessions: turns is a number, or .least, most., not"),
        ({"sessions": {"turns": 0}}, "f: sessions: turns is 0; it must be 1 or more"),
        ({"sessions": {"think": -1}}, "f: sessions: think is -1"),
        ({"sessions": {"thinks": 1}}, "'thinks' is not known; did you mean think"),
    ],
)
def test_an_invalid_setting_of_callers_is_refused_by_name(fields, named):
    with pytest.raises(SettingError, match=named):
        read_calling(fields, "f")


def test_the_share_that_cancels_leaves_at_any_piece_but_the_last():
    draw, calling = Random(0), Calling(cancel=0.2)
    after = [calling.leaves_after(draw, 10) for _ in range(5_000)]
    leaving = [each for each in after if each != NEVER]
    assert 900 < len(leaving) < 1_100 and set(leaving) == set(range(10))
    assert {Calling().leaves_after(draw, 10) for _ in range(50)} == {NEVER}


def test_turns_and_pauses_are_drawn_within_their_bounds():
    draw, sessions = Random(0), Sessions(2, 6, 2.0)
    assert {sessions.further(draw) for _ in range(200)} == {1, 2, 3, 4, 5}
    pauses = [sessions.pause(draw) for _ in range(2_000)]
    assert 1.8e9 < sum(pauses) / len(pauses) < 2.2e9 and Sessions().pause(draw) == 0
    assert sessions.words == "sessions of 2 to 6 turns, 2 s of thought" and not Sessions().words
