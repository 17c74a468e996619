"""The live page's parts: from values to HTML, with every text escaped."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.lane import Budget
from headway.server.dashboard.page.batch_table import batch
from headway.server.dashboard.page.charts import charts
from headway.server.dashboard.page.document import document, fragment, policy, script, style
from headway.server.dashboard.page.headline import headline
from headway.server.dashboard.page.lane_table import budget, lane_table, sparkline
from headway.server.dashboard.page.slow_requests import WIDE, bar
from headway.server.dashboard.page.versions import versions_section
from headway.server.dashboard.view import RunningRow, nothing_of
from tests.server.dashboard.views import MS, half_minute, lane, model, points, slow_row, view

HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"
VERSIONS = {
    "data": [
        {"number": 1, "state": "retired", "author": "", "reason": "the first", "why": "start"},
        {"number": 2, "state": "promoted", "author": "ci", "reason": "wider", "why": "faster"},
        {"number": 3, "state": "trial", "author": "ci", "reason": "chunks", "why": "started"},
    ],
    "model": "writer",
    "in_force": 3,
    "promoted": 2,
    "trial": {
        "version": 3,
        "against": 2,
        "pairs": 7,
        "evidence": [{"figure": "queue_p95", "lane": "voice", "evidence": 1.0, "needed": 5.0}],
    },
}


def whole(shown):
    return document(shown, fragment(shown))


class Seen(HTMLParser):
    """The elements of a page, its text, and whether each that was opened was closed."""

    EMPTY = {"meta", "link", "input"}

    def __init__(self, text):
        super().__init__()
        self.names, self.ids, self.open, self.handlers, self.text = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_headline_names_a_lane_that_misses_its_budget_with_share_n_and_time():
    halves = [half_minute(30, 30), half_minute(20, 12), half_minute(0, 0), half_minute(10, 4)]
    missing = lane("voice", 60, 46, given=halves)
    told = headline(view(model(missing, lane("chat", 40, 40))))
    assert told.verdict == (
        "voice misses its budget: 77 % of 60 requests were inside it in the last 5 minutes; "
        "below 95 % since 23:58:30 UTC."
    )
    assert told.rest.startswith("chat keeps its budget: 100 % of 40 requests were inside it")
    assert told.is_bad and told.spoken == "Below 95 percent of its budget: voice."


def test_the_headline_says_from_when_to_when_a_recovered_lane_missed():
    halves = [half_minute(20, 2), half_minute(20, 2), half_minute(40, 40)]
    told = headline(view(model(lane("voice", 80, 44, given=halves))))
    assert "below 95 % from 23:58:30 UTC to 23:59:30 UTC" in told.verdict


def test_the_headline_gives_share_and_n_of_lanes_that_keep_their_budgets():
    told = headline(
        view(model(lane("voice", 200, 199), lane("chat", 40, 39), lane("bulk", budget=Budget())))
    )
    assert told.verdict.startswith(
        "voice and chat keep their budgets: voice 99.5 % of 200, chat 98 % of 40"
    )
    assert told.spoken == "All lanes keep their budgets." and not told.is_bad


@pytest.mark.parametrize("ended", [0, 1, 19])
def test_fewer_than_20_requests_are_not_judged(ended):
    told = headline(view(model(lane("voice", ended, 0))))
    assert told.verdict.startswith("Too few requests") and f"voice {ended} " in told.verdict
    assert not told.is_bad


def test_20_requests_are_judged():
    assert headline(view(model(lane("voice", 20, 19)))).verdict.startswith("voice keeps")
    assert headline(view(model(lane("voice", 20, 18)))).verdict.startswith("voice misses")


def test_the_headline_shows_a_waiting_request_past_its_budget():
    told = headline(view(model(lane("voice", 20, 20, oldest=1_200 * MS))))
    assert told.rest == "First in line, and past the budget already: voice 1.2 s."
    assert not headline(view(model(lane("voice", 20, 20, oldest=200 * MS)))).rest


def test_an_engine_that_is_down_comes_first_in_the_headline():
    told = headline(view(model(lane("voice", 90, 90), state="down")))
    assert told.verdict == "tiny is down." and told.is_bad and not told.rest
    told = headline(view(model(state="loading", fault="killed by SIGKILL")))
    assert (told.verdict, told.rest) == ("tiny is loading.", "tiny has failed: killed by SIGKILL.")


def test_lanes_without_budgets_are_not_judged():
    told = headline(view(model(lane("bulk", 90, 1, budget=Budget()))))
    assert told.verdict == "No lane has a budget, so none can be missed."


def test_several_models_are_told_apart_by_name():
    both = view(model(lane("voice", 40, 0), name="one"), model(lane("voice", 40, 40), name="two"))
    told = headline(both)
    assert told.verdict.startswith("one@voice misses") and "two@voice keeps" in told.rest
    seen = Seen(whole(both))
    assert seen.names.count("h3") == 6 and len(set(seen.ids)) == len(seen.ids)


def test_a_single_model_has_no_heading_of_its_own():
    assert "h3" not in Seen(whole(view(model(lane())))).names


def full(name):
    """A page on which everything is shown, with this text wherever a name can stand."""
    rows = (RunningRow(name, name, 5, 1, 9, 10 * MS),)
    busy = lane(name, 40, 3, given=[half_minute(40, 3)], refused=2, oldest=900 * MS)
    one = model(busy, name=name, rows=rows, mine=3, others=4)
    row = slow_row(id=name, request_id=name, lane=name, code=name, finish=name)
    row |= {"stages": json.dumps({name: 5}), "ran_before": json.dumps([[name, 1, 2]]), "wall_ns": 5}
    data = [each | {"reason": name, "author": name, "why": name} for each in VERSIONS["data"]]
    told = VERSIONS | {"data": data}
    told["trial"] = VERSIONS["trial"] | {
        "evidence": [{"figure": name, "lane": name, "evidence": 0.0, "needed": 1.0}]
    }
    return view(one, one, slow=[row], key=name, signed_in=True, versions=told)


def test_hostile_names_stay_text():
    plain, hostile = Seen(whole(full("plain"))), Seen(whole(full(HOSTILE)))
    assert hostile.names == plain.names and hostile.open == plain.open == []
    assert hostile.handlers == plain.handlers == []
    assert "".join(hostile.text).count(HOSTILE) == "".join(plain.text).count("plain") > 20


def test_the_policy_allows_one_style_sheet_and_one_script_by_hash_and_no_host():
    text = whole(view(model(lane())))
    assert text.count("<style>") == text.count("<script>") == 1
    assert f"<style>{style()}</style>" in text and f"<script>{script()}</script>" in text
    assert not re.search(r"(src|href)=\"?(https?:)?//", text)
    assert "unsafe" not in policy() and "default-src 'none'" in policy()
    assert "</script" not in script() and "http" not in script()


def test_tables_have_captions_and_headings_for_both_directions():
    text = whole(full("voice"))
    assert (
        text.count("<table") == text.count("<caption") == text.count('<thead><tr><th scope="col"')
    )
    assert text.count('<tr><th scope="row"') + text.count('<th scope="row"') > 10


def test_the_stages_of_a_bar_are_as_wide_as_their_shares_of_the_time():
    row = slow_row()
    stages = json.loads(row["stages"])
    widths = [float(each) for each in re.findall(r'width="([0-9.]+)"', bar(stages, row["wall_ns"]))]
    assert widths == [600.0, 150.0, 250.0] and sum(widths) == WIDE
    text = fragment(view(model(lane()), slow=[row], are_late=True, remembered=9))
    assert "<td>1 s</td><td>100 %</td>" in text and "of 9 that ended last" in text


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 10**12), max_size=9))
def test_bars_never_overlap_nor_leave_the_picture(stages):
    wall = sum(stages.values())
    drawn = re.findall(r'x="([0-9.]+)" y="0" width="([0-9.]+)"', bar(stages, wall))
    at = 0.0
    for x, width in drawn:
        assert float(x) >= at - 0.02
        at = float(x) + float(width)
    assert at <= WIDE + 0.02


def test_a_sparkline_shows_each_half_minute_and_marks_the_misses():
    drawn = sparkline(points(half_minute(10, 10), half_minute(0, 0), half_minute(20, 5)))
    assert drawn.count('class="kept"') == 2 and drawn.count('class="out"') == 1
    assert "30 requests in 15 minutes, 15 outside the budget" in drawn


def test_a_sparkline_shows_one_miss_among_thousands():
    assert 'class="out" x="116" y="0.0" width="3" height="1.5"' in sparkline(
        points(half_minute(9_000, 8_999))
    )


def test_the_lane_table_shows_the_budget_and_marks_figures_past_it():
    text = lane_table(
        model(lane(ended=200, good=150, ttft_p95=400 * MS, queue_p95=5 * MS)), "lanes"
    )
    assert '<b class="missed">▼ 75 %</b>' in text and '<b class="missed">▼ 400 ms</b>' in text
    assert "TTFT 300 ms" in text and budget(Budget()) == "none"


def test_the_batch_table_names_what_only_the_engine_knows_and_what_a_key_hides():
    rows = (RunningRow("a", "voice", 9, 0, 5, MS), RunningRow("b", "voice", 9, 3, 5, MS))
    text = batch(model(lane(), rows=rows, mine=5, others=2), "batch")
    assert "no token yet" in text and "generating" in text and "only the engine knows" in text
    assert "And 3 more of yours and 2 of others, which your key does not see." in text


def test_charts_leave_out_lanes_that_had_no_requests():
    text = charts(model(lane("voice", given=[half_minute(3, 3)]), lane("chat")))
    assert "Time to first token of voice" in text and "Queue wait of chat" not in text
    assert "No requests ended in: chat." in text


def test_a_function_shows_neither_memory_nor_requests():
    function = model(lane(ended=30, good=30), is_function=True, num_blocks=0, blocks=0)
    seen = Seen(fragment(view(function, explains=False)))
    assert not {"batch-0", "slow"} & set(seen.ids) and {"lanes-0", "time"} <= set(seen.ids)
    assert "KV memory" not in "".join(seen.text) and "KV blocks" not in "".join(seen.text)


def test_a_function_that_is_still_loading_is_named_with_its_state():
    both = view(model(lane(ended=30, good=30)), nothing_of("resize", "loading"))
    assert "resize is loading." in "".join(Seen(whole(both)).text)


def test_the_versions_section_shows_the_trial_and_is_empty_without_versions():
    assert versions_section(None) == versions_section({"data": [], "trial": None}) == ""
    text = versions_section(VERSIONS)
    assert "Version 3 is on trial against version 2: 7 pairs" in text
    assert "<td>2.72</td><td>148</td>" in text  # e to the 1 and to the 5
    assert text.index("version-3") < text.index("version-1")
    assert "No trial runs." in versions_section(VERSIONS | {"trial": None})
