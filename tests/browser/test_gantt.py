"""The Gantt of report.html in a real browser: zoom, move, and the row of a request."""

import pytest

from headway.report import report_json
from headway.report.analysis import Analysis
from tests.commands.small_comparison import compared

STATIC, CHUNKED = "static", "continuous-chunk-64"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("gantt-page")
    assert compared(made, strategies=f"{STATIC},{CHUNKED}", seconds=8.0)[0] == 0
    return made


@pytest.fixture(scope="module")
def rows(folder):
    found = Analysis(report_json.read(folder / "report.json"))
    return {
        name: {row.id: row for row in found.report.runs[name][0].requests}
        for name in found.strategies
    }


@pytest.fixture
def page(open_page, folder):
    opened = open_page(folder / "report.html")
    opened.select_option("#gantt-run", label=STATIC)
    opened.locator("#gantt").scroll_into_view_if_needed()
    return opened


def span(page):
    data = page.locator("#gantt").evaluate("box => ({...box.dataset})")
    return int(data["from"]), int(data["to"])


def place(page):
    """Where the marked request's bar is, in the box."""
    across, down = page.locator("#gantt").get_attribute("data-mark").split()
    return {"x": float(across), "y": float(down)}


def told(page):
    terms = page.locator("#gantt-row dt").all_text_contents()
    texts = page.locator("#gantt-row dd").all_text_contents()
    return page.locator("#gantt-row h3").inner_text(), dict(zip(terms, texts, strict=True))


def find(page, id):
    page.fill("#gantt-find", id)
    page.press("#gantt-find", "Enter")


def waiter(rows):
    """The request that waited longest."""
    return max(rows[STATIC].values(), key=lambda row: (row.queue, row.id))


def test_a_click_on_a_request_opens_its_row(page, rows):
    row = waiter(rows)
    find(page, row.id)
    at = place(page)
    page.locator("#gantt").press("Escape")
    assert page.locator("#gantt-row").is_hidden()
    page.locator("#gantt").click(position=at)
    title, lines = told(page)
    assert title == row.id and lines["Lane"].startswith(row.lane)
    assert lines["Waited"].endswith("from its arrival to its first step")
    assert f"{row.queue / 1e9:.2f} s" in lines["Waited"]
    assert f"{row.prompt} token" in lines["Prompt"] and f"{row.generated} token" in lines["Answer"]
    assert lines["Outcome"].startswith("length after ")
    assert lines["Outcome"].endswith("inside its budget" if row.good else "outside its budget")
    if row.budget.ttft < 2**62:
        kept = "kept" if row.ttft <= row.budget.ttft else "missed"
        assert lines["First token"].endswith(f": {kept})")


def test_the_row_says_what_ran_while_the_request_waited(page, rows):
    row = waiter(rows)
    find(page, row.id)
    _, lines = told(page)
    end = row.first_scheduled
    for lane in {each.lane for each in rows[STATIC].values()}:
        ran = sum(
            each.lane == lane and each.first_scheduled < end and each.finished > row.arrived
            for each in rows[STATIC].values()
            if each.id != row.id
        )
        word = "request" if ran == 1 else "requests"
        assert (f"{lane}: {ran} {word}, about" in lines["What ran instead"]) is (ran > 0)
    before = sum(
        each.arrived < row.arrived and each.first_scheduled > row.arrived
        for each in rows[STATIC].values()
    )
    assert lines["In line with it"].endswith(f"{before} of which came before")
    assert " steps of " in lines["Meanwhile"] and "no step ran for" in lines["Meanwhile"]


def test_a_click_beside_the_requests_closes_the_row(page, rows):
    find(page, waiter(rows).id)
    assert page.locator("#gantt-row").is_visible()
    page.locator("#gantt").click(position={"x": 600, "y": 20})
    assert page.locator("#gantt-row").is_hidden()


def test_keys_zoom_move_mark_and_open(page, rows):
    box = page.locator("#gantt")
    whole = span(page)
    box.press("+")
    begin, end = span(page)
    assert abs((end - begin) * 2 - (whole[1] - whole[0])) <= 2 and begin > whole[0]
    box.press("ArrowRight")
    moved = span(page)
    assert moved[0] > begin and abs((moved[1] - moved[0]) - (end - begin)) <= 1
    box.press("0")
    assert span(page) == whole
    box.press("ArrowDown")
    assert page.locator("#gantt-row").is_hidden()
    box.press("ArrowDown")
    box.press("Enter")
    in_order = sorted(rows[STATIC].values(), key=lambda row: (row.arrived // 1_000, row.id))
    assert told(page)[0] == in_order[1].id
    box.press("ArrowUp")
    assert told(page)[0] == in_order[0].id
    box.press("Escape")
    assert page.locator("#gantt-row").is_hidden()


def test_the_wheel_zooms_about_the_pointer_and_dragging_moves_the_span(page):
    box = page.locator("#gantt")
    begin, end = span(page)
    edge = box.bounding_box()
    across = edge["x"] + edge["width"] / 4
    page.mouse.move(across, edge["y"] + 100)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("whole => +document.getElementById('gantt').dataset.to < whole", arg=end)
    low, high = span(page)
    fixed = begin + (end - begin) / 4
    assert abs((high - low) * 2 - (end - begin)) <= (end - begin) / 100
    assert abs((fixed - low) / (high - low) - 0.25) < 0.01, "what is under the pointer stays there"
    page.mouse.down()
    page.mouse.move(across + edge["width"] / 10, edge["y"] + 100, steps=4)
    page.mouse.up()
    after = span(page)
    assert abs((low - after[0]) - (high - low) / 10) < (high - low) / 50
    assert page.locator("#gantt-row").is_hidden(), "moving is no click"
    page.locator("button[data-zoom='0']").click()
    assert span(page) == (begin, end)


def test_touch_opens_a_row_and_two_fingers_zoom(open_page, folder, rows):
    page = open_page(folder / "report.html", 390, 844, has_touch=True)
    page.select_option("#gantt-run", label=STATIC)
    row = waiter(rows)
    find(page, row.id)
    at = place(page)
    page.locator("#gantt").press("Escape")
    page.locator("#gantt").tap(position=at)
    assert told(page)[0] == row.id
    edge, (begin, end) = page.locator("#gantt").bounding_box(), span(page)
    touch = page.context.new_cdp_session(page)

    def fingers(kind, *xs):
        points = [{"x": x, "y": edge["y"] + 150, "id": k} for k, x in enumerate(xs)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", 150, 230)
    fingers("touchMove", 120, 260)
    fingers("touchMove", 110, 270)
    fingers("touchEnd")
    low, high = span(page)
    assert abs((end - begin) / (high - low) - 2) < 0.1


def test_another_strategy_shows_the_same_request(page, rows):
    row = waiter(rows)
    find(page, row.id)
    page.select_option("#gantt-run", label=CHUNKED)
    assert page.locator("#gantt").get_attribute("data-run") == CHUNKED
    title, lines = told(page)
    other = rows[CHUNKED][row.id]
    assert title == row.id and f"{other.generated} token" in lines["Answer"]
    assert lines["Outcome"].endswith("inside its budget" if other.good else "outside its budget")


def test_another_strategy_keeps_the_span(page):
    box = page.locator("#gantt")
    whole = span(page)
    box.press("+")
    box.press("ArrowRight")
    zoomed = span(page)
    assert zoomed != whole
    page.select_option("#gantt-run", label=CHUNKED)
    assert box.get_attribute("data-run") == CHUNKED and span(page) == zoomed
    box.press("0")
    assert span(page) == whole


def test_a_search_for_an_unknown_request_names_it_and_opens_no_row(page):
    page.fill("#gantt-find", "nobody")
    page.press("#gantt-find", "Enter")
    said = page.locator("#gantt-find").evaluate("field => field.validationMessage")
    assert said == "no request nobody is drawn" and page.locator("#gantt-row").is_hidden()
