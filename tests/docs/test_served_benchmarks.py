"""benchmarks.overload and benchmarks.vllm count as good what is inside its lane's budget."""

import pytest

from benchmarks.overload.__main__ import Answer, Asked, Round, Watch, shares
from benchmarks.overload.client import NOTHING, told
from benchmarks.server_overhead.served import Served

ANSWERED = (
    b"HTTP/1.1 200 OK\r\nx-headway-lane: standard\r\ncontent-length: 9",
    b'\r\n\r\n{"metrics":{"generation_time_ms":70.5,"mean_itl_ms":3.5}}',
)
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nretry-after-ms: 1250"


def test_an_answer_tells_its_lane_and_its_times_and_a_refusal_how_long_to_stay_away():
    assert told(*ANSWERED) == (200, 0.0, "standard", 0.0705, 0.0035)
    assert told(REFUSED, b"") == (429, 1.25, "", 0.0, 0.0)
    assert NOTHING[0] == 0


def test_late_answers_are_answered_and_not_good():
    def answer(ended, decode=0.5, tpot=0.02, status=200):
        return Answer(0.0, 0.0, ended, status, 0.0, 0, "standard" if status else "", decode, tpot)

    answers = [
        answer(2.4),  # its first token came after 1.9 s of 2
        answer(2.6),
        answer(9.0, decode=8.0, tpot=0.3),
        answer(0.1, status=0),
    ]
    turn = Round([0.1], Asked(answers, 0.0), [0.1], Watch(Served(0, "", 0)))
    answered, good = shares([turn])
    assert (answered.name, good.name, good.bound) == ("answered_share", "goodput_share", "")
    assert [answered.samples[0], good.samples[0]] == pytest.approx([3, 1])
