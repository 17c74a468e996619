"""report.html in a real browser: no error, charts drawn, tables equal to the JSON, no overflow."""

import pytest

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page import page_tables
from headway.report.page.page import shown
from headway.report.verdict import limited, order, standings, verdict
from tests.commands.small_comparison import FEW, compared

NAMES = FEW.split(",")
TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("page")
    assert compared(made, repeat=2, seconds=6.0)[0] == 0
    return made


@pytest.fixture(scope="module")
def found(folder):
    return Analysis(report_json.read(folder / "report.json"))


@pytest.fixture(scope="module")
def opened(read_page, folder):
    """The page at a width and in a color scheme, to be read and not changed."""
    return lambda width=1280, scheme="light": read_page(
        folder / "report.html", width, scheme=scheme
    )


def test_tables_show_the_values_of_the_json(opened, found):
    page = opened()
    tables = {
        f"latency-{lane}": page_tables.said_only(page_tables.latency(found, lane))
        for lane in found.lanes
    }
    tables |= {
        "throughput": page_tables.throughput(found),
        "resources": page_tables.resources(found),
    }
    tables |= {"endpoints": page_tables.endpoints(found)}
    for name, (head, rows) in tables.items():
        assert page.eval_on_selector_all(f"#{name} thead tr", TEXTS) == [head]
        assert page.eval_on_selector_all(f"#{name} tbody tr", TEXTS) == rows


def test_cards_show_the_values_of_the_json(opened, found):
    page = opened()
    assert page.locator(".card").count() == len(found.comparisons) == len(NAMES) - 1
    by_pair = {(each.name, each.other): each for each in found.comparisons}
    for card in page.locator(".card").all():
        pair = (card.get_attribute("data-strategy"), card.get_attribute("data-other"))
        compared_ = by_pair.pop(pair)
        terms = card.locator("dt").all_text_contents()
        told = card.locator("dd").all_text_contents()
        assert list(zip(terms, told, strict=True)) == page_tables.card(found, compared_)
    first = page.locator(".card").first
    assert first.get_attribute("open") is not None
    assert first.get_attribute("data-strategy") == "dynamic-global"
    assert "voice" in first.inner_text()


def test_charts_are_drawn(opened, found):
    page = opened()
    charts = {
        kind: page.locator(f"svg.{kind}") for kind in ("distribution", "composition", "scatter")
    }
    assert charts["distribution"].count() == 3 * len(found.lanes)
    assert charts["composition"].count() == charts["scatter"].count() == len(NAMES)
    for chart in charts["distribution"].all():
        assert chart.locator("path.line").count() == len(NAMES)
        assert chart.bounding_box()["height"] > 100
    for chart in charts["composition"].all():
        assert chart.locator("path.area").count() == 4
    for name, chart in zip(found.strategies, charts["scatter"].all(), strict=True):
        dots = "".join(each.get_attribute("d") for each in chart.locator("path.dots").all())
        steps = len(found.counted[name][0].steps)
        assert min(steps, 100) <= dots.count("M") <= 400
    sizes = page.eval_on_selector_all(
        "path.line:not(.off), path.area", "all => all.map(each => each.getBBox().width)"
    )
    assert sizes and max(sizes) > 100


def test_the_page_begins_with_the_verdict_and_ends_with_the_settings(opened, found):
    page = opened()
    said = page.locator("header").inner_text().replace("\u00a0", " ")
    assert " ".join(verdict(found).split()) in " ".join(said.split())
    parts = page.eval_on_selector_all("main > section", "all => all.map(each => each.id)")
    assert parts[0] == "verdict" and parts[-1] == "run"
    bars = page.locator(".on-desk svg.attainment")
    assert bars.locator("rect").count() == len(NAMES) * len(limited(found))
    assert [each.strategy for each in standings(found)] == bars.locator(
        "text.name"
    ).all_text_contents()
    groups, (head, rows) = page_tables.summary(found, order(found))
    assert page.eval_on_selector_all("#summary thead tr", TEXTS) == [[g for g, _ in groups], head]
    assert page.eval_on_selector_all("#summary tbody tr", TEXTS) == rows


@pytest.mark.parametrize("width", [390, 1280])
def test_a_table_wider_than_the_screen_shows_that_it_scrolls(opened, width):
    page = opened(width)
    wide = page.locator(".scroll").evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).length"
    )
    cues = page.locator(".cue").evaluate_all("all => all.filter(e => e.offsetParent).length")
    assert cues == wide and (wide > 0 or width == 1280)


def test_without_javascript_hidden_lines_stay_hidden_and_the_rest_is_readable(
    browser, folder, found
):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report.html").as_uri())
    assert page.locator("#verdict svg.attainment").first.is_visible()
    assert page.locator("#summary").is_visible() and page.locator("#run").is_visible()
    assert not page.locator(".legend input").first.is_visible()
    context.close()


def test_a_checkbox_switches_its_line_in_every_chart(open_page, folder, found):
    page = open_page(folder / "report.html")
    on = len(shown(found))
    lanes = len(found.lanes)
    lines = page.locator(".distribution path.line:not(.off)")
    first = page.locator(".series path.line.s0:not(.off)")
    assert lines.count() == 3 * lanes * on and first.count() > 3
    page.locator("#lane-voice .legend input").first.uncheck()
    assert lines.count() == 3 * lanes * (on - 1) and first.count() == 0
    legends = page.locator(".legend").count()
    assert page.locator(".legend input:checked").count() == legends * (on - 1)


def test_queue_batch_and_latency_are_drawn_over_one_axis_of_time(opened, found):
    page = opened()
    charts = page.locator("#time svg.series")
    sparse = sum(len({row.arrived for row in rows}) > 1 for rows in _by_lane(found).values())
    assert charts.count() == 2 + sparse
    for chart in charts.all():
        drawn = {each.get_attribute("class") for each in chart.locator("path.line").all()}
        assert {kind.split()[-1] for kind in drawn if "off" not in kind} >= {"s0", "s1"}
        labels = chart.locator("text").all_text_contents()
        assert labels[: labels.index("0")] == [] and "seconds" in labels


def _by_lane(found):
    rows = found.report.runs[found.strategies[0]][0].requests
    return {lane: [row for row in rows if row.lane == lane] for lane in found.lanes}


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_desktop_in_light_and_dark(opened, width, scheme):
    page = opened(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        ".map(c => c.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b))"
    )
    assert (ink < paper) is (scheme == "light") and abs(ink - paper) > 450
    wide = page.eval_on_selector_all(
        "main *:not(.scroll *, svg *, pre)",
        "all => all.filter(e => e.getBoundingClientRect().right > innerWidth + 1).length",
    )
    assert wide == 0
