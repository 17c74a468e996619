"""The client of `headway bench`: how it parses answers, and the rows that it makes of them."""

import asyncio
import errno
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.client_accuracy.scheduled_server import Plan, true_delays
from headway.core.lane import Budget, Lane
from headway.core.request import NEVER, Finish, Request
from headway.errors import SettingError
from headway.figures.lane_figures import has_tpot
from headway.live.clock import WallClock
from headway.runs.remote import caller, connection, connections, first_contact
from headway.runs.remote.answer_rows import Seen, rows_of
from headway.runs.remote.answer_stream import REASONS, AnswerStream, error_text
from headway.runs.remote.client_run import ClientRun, Manner
from headway.runs.remote.connection import Exchange
from headway.runs.remote.first_contact import Contact
from headway.runs.remote.offer import Offer
from headway.runs.remote.session import Turn
from headway.runs.remote.target import read_target
from headway.runs.remote.wording import Wording
from tests.scheduled import scheduled

MS, LANES = 1_000_000, (Lane("a"),)


def chunk(text, finish="null", **more):
    body = {"choices": [{"text": text, "finish_reason": None}], **more}
    said = json.dumps(body)
    return f"data: {said if finish == 'null' else said.replace('null', finish)}\n\n".encode()


STREAM = (
    chunk("one")
    + b": a comment\n\n"
    + chunk('a "text": "of json" with \\"quotes\\"')
    + chunk("", '"length"')
    + b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
    + b"data: [DONE]\n\n"
)


LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted), LINE_ENDS)
def test_an_answer_is_the_same_however_its_bytes_are_cut(cuts, line_end):
    raw = STREAM.replace(b"\n", line_end)
    stream, ends = AnswerStream(), [*cuts, len(raw)]
    for begin, end in zip([0, *ends], ends, strict=False):
        stream.feed(end, raw[begin:end])
    assert len(stream.times) == 2 and stream.finish == "length" and stream.done
    assert stream.usage == {"prompt_tokens": 7, "completion_tokens": 2}
    assert stream.is_whole and not stream.error
    assert stream.times == sorted(stream.times) and stream.last >= stream.times[-1]


def test_a_last_event_without_a_line_end_counts_if_it_is_whole():
    usage = b'data: {"choices" : [ {"finish_reason" : "stop"} ], "usage" : {"prompt_tokens" : 7}}'
    stream = AnswerStream()
    stream.feed(1, chunk("x") + usage)
    stream.end(2)
    assert stream.finish == "stop" and stream.usage == {"prompt_tokens": 7}
    stream.feed(3, b"data: [DONE]")
    stream.end(4)
    assert stream.done
    for cut in (usage[:-1], usage[:60], b"data: [DO", b"data:", b""):
        stream = AnswerStream()
        stream.feed(1, chunk("x") + cut)
        stream.end(2)
        assert not stream.is_whole and len(stream.times) == 1


@pytest.mark.parametrize(
    "event, pieces",
    [
        (b'{"choices":[{"delta":{"role":"assistant","content":""}}]}', 0),
        (b'{"choices":[{"delta":{"content":null}}]}', 0),
        (b'{"choices":[{"delta":{"content": "x"}}]}', 1),
        (b'{"choices" : [ {"text" : "x"} ]}', 1),
        (b'{"choices":[{"delta":{"reasoning_content":"x"}}]}', 1),
        (b'{"choices":[{"text":"\\"text\\":\\"\\""}]}', 1),
        (b'{"choices":[{"text":""}],"usage":null}', 0),
        (b"not json", 0),
    ],
)
def test_only_an_event_with_text_counts_as_a_piece(event, pieces):
    stream = AnswerStream()
    stream.feed(5, b"data: " + event + b"\n\n")
    assert stream.times == [5] * pieces and not stream.usage and not stream.error


@pytest.mark.parametrize(
    "later",
    [
        b'{"choices":[],"x_groq":{"usage":{"queue_time":1}}}',
        b'{"choices":[],"usage":null,"timings":{"usage":{"completion_tokens":1}}}',
        b'{"choices":[],"usage":{}}',
        b'{"choices":[],"usage":{no json}}',
    ],
)
def test_usage_is_not_overwritten_by_an_event_that_only_resembles_it(later):
    stream = AnswerStream()
    stream.feed(1, chunk("x") + USAGE + b"data: " + later + b"\n\n")
    assert stream.usage == {"prompt_tokens": 7, "completion_tokens": 8}


def test_the_text_of_an_answer_is_that_of_its_first_choice():
    stream, odd = AnswerStream(keeps=True), b'data: {"choices":%b,"x":{"text":"y"}}\n\n'
    for choices in (b'["text"]', b'[{"delta":"content"}]', b"[]", b"{}", b"null", b'[{"text":1}]'):
        stream.feed(1, odd % choices)
    stream.feed(1, b'data: {"choices":[{"text":"a"},{"text":"b"}]}\n\n')
    stream.feed(1, b'data: {"choices":[{"delta":{"content":"c"}}]}\n\n')
    assert stream.text == "ac" and len(stream.times) == 8


def test_an_answer_with_an_error_in_its_stream_is_not_whole():
    stream = AnswerStream()
    stream.feed(1, chunk("x") + b'data: {"error": {"message": "out of\\n memory"}}\n\n')
    stream.feed(2, b"data: [DONE]\n\n")
    assert stream.error == "out of memory" and not stream.is_whole
    assert error_text(b'{"detail": "Not Found"}') == "Not Found"
    assert error_text(b"<html>") == "" and error_text(b"[1]") == ""


@pytest.mark.parametrize(
    "said, shown",
    [
        (r"half \ud83d here", "half ? here"),
        (r"\u001b]0;own\u0007\u001b[2Jcleared", "]0;own[2Jcleared"),
        (r"a\u009b2J \u202eb\u0000", "a2J b"),
        (r"\ud83d\ude00 ü", "😀 ü"),
    ],
)
def test_an_error_text_is_encodable_and_free_of_control_characters(said, shown):
    assert error_text(b'{"error": {"message": "%b"}}' % said.encode()) == shown


DEEP = b"[" * 200_000


def test_too_deeply_nested_json_is_an_error_without_a_text():
    assert error_text(DEEP) == "" and error_text(b'{"error": ' + DEEP) == ""
    stream = AnswerStream()
    stream.feed(1, chunk("x") + b'data: {"error": ' + DEEP + b"\n\n")
    assert stream.error == "the stream ended with an error"
    head = b"HTTP/1.1 500 No\r\ncontent-length: %d\r\n\r\n" % len(DEEP)
    with answering_once(head + DEEP) as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and client["a-1"].error == "status 500"
    with (
        answering_once(head.replace(b"500", b"404") + DEEP) as url,
        pytest.raises(SettingError, match=r"models: it answers with status 404; say --model"),
    ):
        wording_of(url)


DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":8}}\n\n'


@pytest.mark.parametrize(
    "events, error",
    [
        (chunk("", '"abort"'), "finish_reason abort"),
        (chunk("", '"error"', error={"message": "it left"}), "it left"),
        (b'data: {"object":"error","message":"boom","code":500}\n\n', "boom"),
        (b'data: {"type":"x", "error" : {"message":"boom"}}\n\n', "boom"),
        (b'data: {"error":{"message":"boom"}}\n\ndata: {"error":"later"}\n\n', "boom"),
        (b'event: error\ndata: {"message":"boom"}\n\n', "boom"),
        (b"event: error\r\ndata: it broke\r\n\r\n", "the stream ended with an error"),
        (b'data: {"error": no json}\n\n', "the stream ended with an error"),
    ],
)
def test_an_error_is_found_in_every_form_that_an_event_gives_it(events, error):
    stream = AnswerStream()
    stream.feed(1, chunk("x") + events + DONE)
    assert stream.error == error and stream.done and not stream.is_whole


@pytest.mark.parametrize(
    "events",
    [
        *(chunk("", f'"{reason}"') for reason in REASONS),
        chunk("error", '"stop"'),
        b'data: {"choices":[{"text":"an \\"error\\":1","finish_reason":"stop"}],"error":null}\n\n',
        b'event: error\nevent: message\ndata: {"message":"boom"}\n\n',
    ],
)
def test_an_event_that_only_resembles_an_error_is_no_error(events):
    stream = AnswerStream()
    stream.feed(1, chunk("x") + events + DONE)
    assert not stream.error and stream.is_whole


def test_a_stream_with_only_its_end_marker_is_not_whole():
    stream = AnswerStream()
    stream.feed(1, DONE)
    assert stream.done and not stream.is_whole
    stream.feed(2, b'data: {"usage":{"completion_tokens":0}}\n\n')
    assert stream.is_whole


@pytest.mark.parametrize(
    "url, address, prefix",
    [
        ("http://h:8000", "h:8000", ""),
        ("http://h:8000/v1/", "h:8000", ""),
        ("https://h/api/v1", "h/api", "/api"),
        ("http://[::1]:9", "[::1]:9", ""),
    ],
)
def test_a_target_is_read_from_its_url(url, address, prefix):
    target = read_target(url)
    assert (target.name, target.prefix) == (address, prefix)


@pytest.mark.parametrize(
    "url",
    [
        *("h:8000", "ftp://h", "http://", "http://h:x", "http://u:p@h", "http://h/?a=1"),
        *("http://h /", "http://a..b", "http://.h:80", f"http://{'a' * 64}.com", "http://h:0"),
    ],
)
def test_an_invalid_server_url_is_refused(url):
    with pytest.raises(SettingError, match="is no URL of a server"):
        read_target(url)


def wording_of(url, **wishes):
    wished = {"model": "", "chat": False, "text": False} | wishes
    return asyncio.run(Contact(read_target(url), {}).wording(*wished.values()))


def request(number, at=0, prompt=10, answer=3, lane="a"):
    return Request(f"{lane}-{number}", tuple(range(prompt)), answer, at * MS, lane)


def served(url, offers, lanes=LANES, **manner):
    """The rows by id, the client's rows by id, and the outcome."""
    manner = {"drain": 20_000 * MS, "window": 100 * MS} | manner
    wording = Wording(read_target(url), "scheduled", text=range(100))
    run = ClientRun(wording, offers, lanes, Manner(**manner))
    outcome = run.serve()
    assert outcome.complete and run.load.cores >= 0
    assert [row.id for row in outcome.requests] == [row.id for row in outcome.client]
    rows = {row.id: row for row in outcome.requests}
    return rows, {row.id: row for row in outcome.client}, outcome


def test_times_count_from_the_scheduled_arrival_and_never_lie_before_the_schedule():
    offers = [Offer(request(n, at=7 * n, prompt=10 + n, answer=4)) for n in range(8)]
    with scheduled() as url:
        rows, client, outcome = served(url, offers)
    assert outcome.offered == {"a": 8} and not outcome.steps
    for offer in offers:
        row, mine = rows[offer.request.id], client[offer.request.id]
        first, *_, last = true_delays(4)
        assert row.finish is Finish.LENGTH and row.arrived == offer.request.arrived
        assert (row.prompt, row.generated) == (len(offer.request.prompt), 4)
        assert row.ttft >= first * 1e9 and row.e2e >= last * 1e9
        assert row.finished >= row.last_token >= row.first_token >= row.arrived + mine.lag
        assert 0 < sum(mine.gaps) <= row.last_token - row.first_token and len(mine.gaps) == 3
        assert (mine.attempts, mine.status, mine.error, mine.left) == (1, 200, "", False)


def answering(**fields):
    """A planner. pN: the plans for the first, second ... request with a prompt of N tokens."""
    seen = dict[str, int]()

    def plan(body, headers):
        key = f"p{len(body['prompt'])}"
        seen[key] = seen.get(key, 0) + 1
        plans = fields[key]
        return plans[min(seen[key], len(plans)) - 1]

    return plan, seen


GOOD = Plan((0.001, 0.002, 0.003))
BUSY = Plan(status=429, headers={"retry-after-ms": "5"})


def test_each_way_to_fail_has_its_finish_and_its_reason():
    plan, _ = answering(
        p1=[GOOD],
        p2=[BUSY],
        p3=[Plan(status=503)],
        p4=[Plan(status=500)],
        p5=[Plan((0.001, 0.002), breaks_after=1)],
        p6=[Plan((0.001, 0.002), error_after=1)],
        p7=[Plan(status=408)],
        p8=[Plan(status=400, body="{}")],
    )
    with scheduled(plan) as url:
        rows, client, _ = served(url, [Offer(request(n, prompt=n)) for n in range(1, 9)])
    found = {id[2:]: (rows[id].finish, client[id].status, client[id].error) for id in rows}
    assert found == {
        "1": (Finish.LENGTH, 200, ""),
        "2": (Finish.REFUSED, 429, "as planned"),
        "3": (Finish.REFUSED, 503, "as planned"),
        "4": (Finish.ERROR, 500, "as planned"),
        "5": (Finish.ERROR, 200, found["5"][2]),
        "6": (Finish.ERROR, 200, "as planned"),
        "7": (Finish.EXPIRED, 408, "as planned"),
        "8": (Finish.ERROR, 400, "status 400"),
    }
    assert found["5"][2] in (
        "the server hung up",
        "the connection broke: [Errno 104] Connection reset by peer",
    )
    assert rows["a-5"].generated == 1 and rows["a-2"].ttft == NEVER
    assert [row.id for row in rows.values() if row.good] == ["a-1"]


def test_a_retry_obeys_retry_after_and_counts_from_the_scheduled_arrival():
    later = Plan(status=429, headers={"Retry-After": "0.3"})
    plan, seen = answering(
        p1=[later, GOOD],
        p2=[BUSY] * 9,
        p3=[Plan(status=400)],
        p4=[Plan(status=503, headers={"x-should-retry": "false"})],
        p5=[Plan(status=429, headers={"retry-after": "999"})],
    )
    with scheduled(plan) as url:
        offers = [Offer(request(n, prompt=n)) for n in range(1, 6)]
        rows, client, _ = served(url, offers, retries=2)
    assert rows["a-1"].finish is Finish.LENGTH and rows["a-1"].ttft >= 300 * MS
    assert client["a-1"].attempts == 2 and client["a-1"].lag < 300 * MS
    assert rows["a-2"].finish is Finish.REFUSED and client["a-2"].attempts == 3
    assert [client[f"a-{n}"].attempts for n in (3, 4, 5)] == [1, 1, 1]
    assert seen == {"p1": 2, "p2": 3, "p3": 1, "p4": 1, "p5": 1}


def test_a_retry_obeys_dates_and_the_x_should_retry_header(monkeypatch):
    monkeypatch.setattr(caller, "unix_seconds", lambda: 0.0)
    dates = [f"Thu, 01 Jan 1970 00:00:{second} GMT" for second in ("01", "00")]
    dates += ["Fri, 02 Jan 1970 00:00:00 GMT", "soon"]
    plan, _ = answering(
        p1=[Plan(status=429, headers={"retry-after": dates[0]}), GOOD],
        p2=[Plan(status=429, headers={"retry-after": dates[1]}), GOOD],
        p3=[Plan(status=429, headers={"retry-after": dates[2]}), GOOD],
        p4=[Plan(status=429, headers={"retry-after": dates[3]}), GOOD],
        p5=[Plan(status=400, headers={"x-should-retry": "true"}), GOOD],
        p6=[Plan(status=429, headers={"x-should-retry": "true", "retry-after": "999"}), GOOD],
    )
    with scheduled(plan) as url:
        offers = [Offer(request(n, prompt=n)) for n in range(1, 7)]
        rows, client, _ = served(url, offers, retries=1)
    assert [client[f"a-{n}"].attempts for n in range(1, 7)] == [2, 2, 1, 2, 2, 1]
    assert rows["a-1"].ttft >= 1_000 * MS, "at its date, which is later than a wait of its own"


def test_a_caller_that_leaves_hangs_up_and_ends_as_cancelled():
    slow = Plan((*[0.001 * n for n in range(1, 6)], 60.0))
    plan, _ = answering(p1=[slow], p2=[slow], p3=[GOOD])
    offers = [
        Offer(request(1, prompt=1), leaves_after=2),
        Offer(request(2, prompt=2), leaves_after=0),
        Offer(request(3, prompt=3, at=50)),
    ]
    with scheduled(plan) as url:
        rows, client, _ = served(url, offers)
    assert rows["a-1"].finish is Finish.CANCELLED and client["a-1"].left
    assert rows["a-1"].generated >= 2 and rows["a-2"].first_token == NEVER
    assert client["a-2"].left and not client["a-3"].left and rows["a-3"].good


class Jumping(WallClock):
    """A clock that can be put ahead."""

    ahead = 0

    def now(self):
        return super().now() + self.ahead


def test_the_time_of_a_slow_display_counts_as_a_stall_of_the_client():
    with scheduled() as url:
        wording = Wording(read_target(url), "scheduled", text=range(100))
        run = ClientRun(wording, [Offer(request(1))], LANES, Manner(20_000 * MS, 100 * MS))
        run.clock = Jumping()

        def slow(progress):
            run.clock.ahead = 3_000 * MS

        run.serve(slow)
    assert max(run.load.stalls) > 2_900 * MS


def test_a_request_still_open_after_the_drain_is_cut_off_as_expired():
    plan, _ = answering(p1=[Plan((0.001, 600.0))], p2=[GOOD])
    with scheduled(plan) as url:
        offers = [Offer(request(n, prompt=n)) for n in (1, 2)]
        rows, client, outcome = served(url, offers, drain=1_000 * MS)
    assert rows["a-1"].finish is Finish.EXPIRED and client["a-1"].error == "the run was over"
    assert rows["a-1"].generated == 1 and not rows["a-1"].good and rows["a-2"].good
    assert outcome.nanoseconds == max(100 * MS, rows["a-1"].last_token, rows["a-2"].finished)


def test_the_seconds_of_a_run_leave_out_the_wait_for_requests_that_are_cut_off():
    plan, _ = answering(p1=[Plan((600.0,))], p2=[GOOD])
    with scheduled(plan) as url:
        offers = [Offer(request(n, prompt=n)) for n in (1, 2)]
        _, _, outcome = served(url, offers, drain=100 * MS, window=600 * MS)
        assert outcome.nanoseconds == 600 * MS
        offers = [Offer(request(n, prompt=2)) for n in range(3)]
        rows, _, outcome = served(url, offers, callers=1, window=60_000 * MS)
    assert outcome.nanoseconds < 60_000 * MS, "they ran out"
    assert outcome.nanoseconds >= max(row.finished for row in rows.values())


def test_budgets_come_from_the_lane_and_headers_from_the_offer():
    heard = []

    def plan(body, headers):
        heard.append(headers.get("x-headway-lane"))
        return Plan((0.05, 0.06))

    lanes = [Lane("a", Budget(ttft=20 * MS)), Lane("b", Budget(ttft=NEVER - 1))]
    offers = [Offer(request(1)), Offer(request(2, lane="b"), {"X-Headway-Lane": "b"})]
    with scheduled(plan) as url:
        rows, _, outcome = served(url, offers, lanes)
    assert sorted(map(str, heard)) == ["None", "b"] and outcome.offered == {"a": 1, "b": 1}
    assert not rows["a-1"].good and rows["b-2"].good


def session(number, turns=(5, 7), think=20, **offer):
    """An offer with further turns. turns: the number of words in the prompt of each."""
    return Offer(
        request(number, prompt=3),
        turns=tuple(
            Turn(Request(f"a-{number}.{at}", tuple(range(words)), 2, NEVER, "a"), think * MS)
            for at, words in enumerate(turns, 2)
        ),
        **offer,
    )


def in_text(url, offers, chat=False, context=0, words_per_token=1.0, **manner):
    """Like `served`, with prompts of the words w0, w1, w2 ... Returns the rows and the outcome."""
    words = [f"w{n}" for n in range(100)]
    wording = Wording(read_target(url), "m", chat, range(100), words, words_per_token)
    wording = replace(wording, context=context)
    manner = {"drain": 20_000 * MS, "window": 10_000 * MS} | manner
    outcome = ClientRun(wording, offers, LANES, Manner(**manner)).serve()
    return {row.id: row for row in outcome.requests}, outcome


def test_a_turn_repeats_the_conversation_and_follows_the_answer_after_a_pause():
    heard = []

    def plan(body, headers):
        heard.append(body)
        return Plan((0.001, 0.002))

    with scheduled(plan) as url:
        rows, outcome = in_text(url, [session(1)])
        assert [body["prompt"] for body in heard] == [
            "w0 w1 w2",
            "w0 w1 w2 word word w0 w1 w2 w3 w4",
            "w0 w1 w2 word word w0 w1 w2 w3 w4 word word w0 w1 w2 w3 w4 w5 w6",
        ]
        heard.clear()
        in_text(url, [session(1, turns=(1,))], chat=True)
    assert [each["role"] for each in heard[1]["messages"]] == ["user", "assistant", "user"]
    assert [each["content"] for each in heard[1]["messages"]] == ["w0 w1 w2", " word word", "w0"]
    assert list(rows) == ["a-1", "a-1.2", "a-1.3"] and outcome.offered == {"a": 3}
    first, second, third = rows.values()
    assert second.arrived >= first.finished + 20 * MS and third.arrived >= second.finished + 20 * MS
    assert all(row.good and row.arrived + row.ttft == row.first_token for row in rows.values())


def test_every_turn_of_a_long_session_repeats_all_earlier_answers():
    heard = []

    def plan(body, headers):
        heard.append(body["prompt"])
        return Plan((0.001, 0.002))

    with scheduled(plan) as url:
        rows, _ = in_text(url, [session(1, turns=(1, 1, 1, 1), think=1)])
    assert len(rows) == 5
    assert heard[1:] == ["w0 w1 w2" + " word word w0" * turn for turn in range(1, 5)]


def test_a_session_ends_with_a_failure_the_window_or_a_full_context():
    with scheduled(lambda body, headers: GOOD) as url:
        rows, _ = in_text(url, [session(1)], window=10 * MS)
        assert list(rows) == ["a-1"], "the next turn would come after the window"
    with scheduled(lambda body, headers: Plan(status=500)) as url:
        rows, outcome = in_text(url, [session(1), session(2)])
    assert list(rows) == ["a-1", "a-2"] and outcome.offered == {"a": 2}
    with scheduled(lambda body, headers: Plan((0.001, 60.0))) as url:
        rows, _ = in_text(url, [session(1, leaves_after=1)])
    assert list(rows) == ["a-1"] and rows["a-1"].finish is Finish.CANCELLED
    with scheduled(lambda body, headers: GOOD) as url:
        for context, turns in ((14, 1), (15, 2)):  # 3 + 3 tokens, then 5 + 2: 13 of 0.9 x 15
            rows, _ = in_text(url, [session(1, turns=(5, 50))], context=context)
            assert len(rows) == turns


TWO_A_WORD = {"words_per_token": 0.5, "context": 40}  # tokens, of which 36 are used


def test_the_room_of_a_session_is_counted_in_tokens_and_not_in_words():
    with scheduled(lambda body, headers: GOOD) as url:
        for words, turns in ((14, 2), (15, 1)):  # 3 + 3 tokens as counted, then 2 x 14 + 2
            rows, _ = in_text(url, [session(1, turns=(words,))], **TWO_A_WORD)
            assert len(rows) == turns


def test_without_token_counts_a_prompt_is_estimated_from_the_whole_conversation():
    answer = chunk("a") + chunk("b", '"length"') + DONE
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    with answering_once(*[head + answer] * 3) as url:
        rows, _ = in_text(url, [session(1, turns=(5, 2, 5))], **TWO_A_WORD)
    # 6 + 2 tokens of the first turn, 10 + 2 of the second, 4 + 2 of the third; 10 + 2 are too many
    assert [row.prompt for row in rows.values()] == [6, 18, 24]


def test_a_closed_loop_asks_again_once_it_is_answered_and_stops_with_the_window():
    under_way, most = [0], [0]
    offers = [Offer(request(n)) for n in range(10_000)]
    with scheduled(lambda body, headers: GOOD) as url:
        rows, _, outcome = served(url, offers, callers=3, window=200 * MS)
    assert 3 < len(rows) < 10_000 and outcome.offered == {"a": len(rows)}
    ends = sorted((row.finished, -1) for row in rows.values())
    for _, step in sorted(ends + [(row.arrived, 1) for row in rows.values()]):
        under_way[0] += step
        most[0] = max(most[0], under_way[0])
    assert most[0] <= 3


@contextmanager
def answering_once(*answers):
    """A server that takes one connection for each answer, sends its bytes and hangs up.

    If an answer is a list, the connection has a request for each element.
    """
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        for answer in answers:
            taken, _ = listening.accept()
            with taken:
                for each in answer if isinstance(answer, list) else [answer]:
                    taken.recv(1 << 16)
                    taken.sendall(each)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    thread.join(30)
    listening.close()


def test_an_empty_answer_misses_a_ttft_limit():
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    empty = chunk("", '"stop"') + USAGE.replace(b"8}", b"0}") + DONE
    for budget, good in ((Budget(ttft=20_000 * MS), False), (Budget(e2e=20_000 * MS), True)):
        with answering_once(head + empty) as url:
            rows, client, _ = served(url, [Offer(request(1))], [Lane("a", budget)])
        row = rows["a-1"]
        assert (row.finish, row.generated, row.ttft) == (Finish.STOP, 0, NEVER)
        assert row.good is good and client["a-1"].asked == 3


@pytest.mark.parametrize("pieces", [1, 2])
def test_an_answer_in_one_piece_has_no_time_per_token(pieces):
    async def exchanged():
        exchange = Exchange()
        exchange.status = 200
        for at in range(pieces):
            exchange.stream.feed((5 + at) * MS, chunk("some of it"))
        exchange.stream.feed(9 * MS, chunk("", '"length"') + USAGE + DONE)
        return exchange

    seen = Seen(asyncio.run(exchanged()), due=0, sent=0, ended=9 * MS, attempts=1)
    row, client = rows_of(Offer(request(1, answer=8)), seen, Budget(), 0, 10)
    assert (row.generated, len(client.gaps), row.finished) == (8, pieces - 1, 9 * MS)
    assert row.last_token == (5 * MS if pieces == 1 else 9 * MS)
    assert has_tpot(row) is (pieces == 2)


def test_an_answer_may_end_with_its_connection_but_must_be_an_http_stream():
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    with answering_once(head + STREAM) as url:
        rows, _, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.LENGTH and rows["a-1"].prompt == 7
    with answering_once(b"SSH-2.0-OpenSSH\r\n") as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and "no HTTP" in client["a-1"].error
    with answering_once(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert client["a-1"].error == "the answer is no stream"
    with answering_once(head + STREAM.rstrip()) as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].good and not client["a-1"].error
    with answering_once(b'HTTP/1.0 200 OK\r\n\r\n{"error": {"message": "no room"}}') as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and client["a-1"].error == "no room"
    with answering_once(head + DONE) as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and client["a-1"].error == "the answer is empty"


def test_a_kept_connection_that_the_server_has_closed_is_no_error():
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    whole = head + b"content-length: " + str(len(STREAM)).encode() + b"\r\n\r\n" + STREAM
    with answering_once(whole, whole) as url:
        rows, client, _ = served(url, [Offer(request(1)), Offer(request(2, at=100))])
    assert [row.finish for row in rows.values()] == [Finish.LENGTH] * 2
    assert [row.attempts for row in client.values()] == [1, 1]


def test_a_kept_connection_that_ends_later_is_a_failed_attempt(monkeypatch):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    whole = head + b"content-length: " + str(len(STREAM)).encode() + b"\r\n\r\n" + STREAM
    offers, asked = [Offer(request(1)), Offer(request(2))], {"callers": 1, "window": 60_000 * MS}
    for at_once, retries, attempts in ((60.0, 0, 1), (-1.0, 1, 2), (-1.0, 0, 1)):
        monkeypatch.setattr(connections, "AT_ONCE", at_once)
        again = at_once > 0 or retries
        with answering_once([whole, b""], *[whole] * bool(again)) as url:
            rows, client, _ = served(url, offers, retries=retries, **asked)
        assert rows["a-1"].good and client["a-2"].attempts == attempts
        assert rows["a-2"].finish is (Finish.LENGTH if again else Finish.ERROR)
    assert client["a-2"].error == "the server hung up"


CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("stream", [STREAM, chunk("", '"length"') + DONE])
def test_an_answer_with_its_end_marker_is_whole_though_the_server_hangs_up(stream):
    with answering_once(CHUNKED + chunked(stream)) as url:  # hangs up before the last chunk
        rows, client, _ = served(url, [Offer(request(1))], retries=1)
    assert rows["a-1"].finish is Finish.LENGTH and rows["a-1"].good
    assert (client["a-1"].error, client["a-1"].attempts) == ("", 1)
    with answering_once(CHUNKED + chunked(stream[:-9])) as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert client["a-1"].error == "the server hung up", "it may have had more to say"


@contextmanager
def taking(*connections):
    """A server that answers the requests on its connections and keeps the connections open.

    connections: for each, the number of requests and the pieces that answer each request.
    """
    over, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def serve():
        kept = []
        for requests, *pieces in connections:
            taken, _ = listening.accept()
            kept.append(taken)
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(requests):
                taken.recv(1 << 16)
                for piece in pieces:
                    taken.sendall(piece)
        over.wait(60)
        for taken in kept:
            taken.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    over.set()
    thread.join(30)
    listening.close()


def test_an_ended_stream_that_stays_open_does_not_hold_up_its_caller():
    said = CHUNKED + chunked(STREAM)
    offers = [Offer(request(1)), Offer(request(2))]
    with taking((1, said), (1, said)) as url:
        rows, client, _ = served(url, offers, callers=1, window=10_000 * MS, drain=1_000 * MS)
    assert [row.finish for row in rows.values()] == [Finish.LENGTH] * 2
    assert all(row.error == "" and row.attempts == 1 for row in client.values())
    assert all(row.finished == row.last_token for row in rows.values()), "when its events came"


def test_a_connection_is_reused_if_the_body_ends_after_the_end_marker(monkeypatch):
    monkeypatch.setattr(connection, "AFTER_DONE", 30.0)
    offers = [Offer(request(1)), Offer(request(2))]
    with taking((2, CHUNKED + chunked(STREAM), b"0\r\n\r\n")) as url:
        rows, client, _ = served(url, offers, callers=1, window=60_000 * MS)
    assert [row.finish for row in rows.values()] == [Finish.LENGTH] * 2
    assert [row.attempts for row in client.values()] == [1, 1]


def test_a_lack_of_descriptors_or_ports_is_the_clients_own_fault(monkeypatch):
    several = "Multiple exceptions: [Errno 111] Connect call failed, [Errno 99] Cannot assign"
    for error, reason in (
        (OSError(errno.EMFILE, "x"), "Too many open files"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "Cannot assign requested address"),
        (OSError(several), several),
    ):

        async def refuse(self, *given, error=error, **more):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.SelectorEventLoop, "create_connection", refuse)
            _, client, _ = served("http://127.0.0.1:1", [Offer(request(1))])
        assert client["a-1"].is_clients_fault
        assert client["a-1"].error == f"the client itself: {reason}"
    _, client, _ = served("http://127.0.0.1:1", [Offer(request(1))])
    assert client["a-1"].error == "no connection: Connection refused"
    assert not client["a-1"].is_clients_fault


def test_a_tls_failure_is_reported_as_a_tls_failure():
    with answering_once(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        rows, client, _ = served(url.replace("http", "https"), [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and client["a-1"].status == 0
    assert client["a-1"].error.startswith("no connection: TLS: ")


def test_an_interim_response_is_skipped_and_a_protocol_switch_is_an_error(caplog):
    interim = b"HTTP/1.1 %d Wait\r\nlink: </x>\r\n\r\n"
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + STREAM
    for status in (100, 103):
        with answering_once(interim % status + whole) as url:
            rows, client, _ = served(url, [Offer(request(1))])
        assert rows["a-1"].finish is Finish.LENGTH and client["a-1"].status == 200
    switched = b"HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    with answering_once(switched + b"\0\1") as url:
        rows, client, _ = served(url, [Offer(request(1))])
    assert rows["a-1"].finish is Finish.ERROR and client["a-1"].error == "status 101"
    assert not caplog.records, "the loop reports what escapes"


def test_the_first_contact_finds_what_the_server_takes():
    with scheduled() as url:
        found = wording_of(url)
        assert (found.model, found.context, found.exact) == ("scheduled", 1 << 20, True)
        assert found.extras == ("ignore_eos", "min_tokens") and len(found.text) > 10_000
        text = wording_of(url, text=True)
        assert not text.exact and text.words_per_token == 1.0
        assert wording_of(url, chat=True).chat
        with pytest.raises(SettingError, match="has no model other; it has scheduled"):
            wording_of(url, model="other")


def test_a_server_that_knows_fewer_fields_is_asked_without_them():
    def plan(body, headers):
        wrong = {"min_tokens", "stream_options"} & body.keys()
        return Plan(status=400) if wrong else GOOD

    with scheduled(plan, tokenizes=False) as url:
        found = wording_of(url)
    assert found.extras == () and not found.counts and not found.exact
    assert found.body((0, 1), 5)["prompt"] == " ".join(found.words[:2])


def test_a_server_that_loads_its_model_is_waited_for_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(first_contact, "AGAIN", 0.001)
    loading = Plan(status=503, body='{"error":{"message":"Loading model"}}')
    told, answers = [], iter([loading] * 3)
    with scheduled(lambda body, headers: next(answers, GOOD), tokenizes=False) as url:
        contact = Contact(read_target(url), {}, told.append)
        assert asyncio.run(contact.wording("", False, False)).model == "scheduled"
        assert told == [
            f"{url} answers with status 503: Loading model. It is asked again for at most 300 s."
        ]
    monkeypatch.setattr(first_contact, "LOADED_WITHIN", 0.01)
    with (
        scheduled(lambda body, headers: loading, tokenizes=False) as url,
        pytest.raises(SettingError, match=r"503: Loading model, still after 0\.01 s"),
    ):
        wording_of(url)


def test_a_check_passes_for_any_answer_and_fails_without_one():
    with answering_once(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n") as url:
        asyncio.run(Contact(read_target(url), {}).check())
    with pytest.raises(SettingError, match="does not answer"):
        asyncio.run(Contact(read_target("http://127.0.0.1:1"), {}).check())


def test_a_server_that_cannot_be_asked_is_named_with_its_reason():
    with pytest.raises(SettingError, match=r"127.0.0.1:1 does not answer: .* refused"):
        wording_of("http://127.0.0.1:1")
    with (
        scheduled(lambda body, headers: Plan(status=401)) as url,
        pytest.raises(SettingError, match="completions answers with status 401: as planned"),
    ):
        wording_of(url)
    with (
        answering_once(b"HTTP/1.1 404 No\r\ncontent-length: 2\r\n\r\n{}") as url,
        pytest.raises(SettingError, match=r"models: it answers with status 404; say --model"),
    ):
        wording_of(url)
    models, error = b'{"data": [{"id": "m"}]}', b'{"error": {"message": "no room"}}'
    with (
        answering_once(*[b"HTTP/1.0 200 OK\r\n\r\n" + each for each in (models, error)]) as url,
        pytest.raises(SettingError, match=f"{url} fails: no room"),
    ):
        wording_of(url, text=True)
