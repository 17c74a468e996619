"""The first screen of report.html: a sentence, a chart and a table, whatever was compared."""

from itertools import combinations

import pytest

from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page.first_screen import ROWS, first_names
from headway.report.page.page_charts import PHONE
from headway.report.verdict import limited, order, standings
from headway.traffic.from_yaml import read_endpoints
from tests.commands.small_comparison import FEW, compared

FIRSTS = "rows => rows.map(row => row.cells[0].textContent)"
LONG = {"customer-support-assistant": (100, 300), "document-summarisation-service": (300, 600)}
BOXES = "all => all.map(each => each.getBBox()).map(box => [box.x, box.y, box.width, box.height])"
MANY = FEW + ",priority,continuous-chunk-128,static-buckets,continuous-mixed"


@pytest.fixture(scope="module", params=[FEW, MANY], ids=["few", "many"])
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("first-screen")
    assert compared(made, strategies=request.param, seconds=12.0)[0] == 0
    return made


@pytest.fixture(scope="module")
def found(folder):
    return Analysis(report_json.read(folder / "report.json"))


@pytest.mark.parametrize("width, height", [(390, 844), (1280, 800)])
def test_the_sentence_the_chart_and_the_table_are_on_the_first_screen(
    read_page, folder, width, height
):
    page = read_page(folder / "report.html", width, height)
    places = [page.locator(name).bounding_box() for name in ("h1", "figure.first", "#summary")]
    ends = [place["y"] + place["height"] for place in places]
    assert ends == sorted(ends) and ends[-1] <= height
    assert page.evaluate("scrollY") == 0


def test_of_many_strategies_the_best_and_the_baseline_come_first(open_page, folder, found):
    page, names = open_page(folder / "report.html"), first_names(found)
    assert len(names) == ROWS and found.baseline in names
    assert names[: ROWS - 1] == order(found)[: ROWS - 1]
    titles = page.eval_on_selector_all("#summary tbody tr", FIRSTS)
    assert [title.removesuffix(" (baseline)") for title in titles] == names
    whole = page.locator("#summary-all tbody tr")
    assert whole.count() == (len(found.strategies) if len(found.strategies) > ROWS else 0)
    if whole.count():
        page.locator("#verdict details summary").click()
        assert whole.last.is_visible()


def test_a_long_name_leaves_half_of_a_phone_to_the_figures(open_page, tmp_path):
    name = "as-we-run-it-today-with-chunks-of-64"
    (tmp_path / "ways.yaml").write_text(
        f"{name}: {{join: {{continuous: {{size: 8}}}}, chunk: {{fixed: 64}}, step_tokens: 72}}\n"
    )
    ways = str(tmp_path / "ways.yaml")
    assert compared(tmp_path, strategies=ways, seconds=6.0)[0] == 0
    page = open_page(tmp_path / "report.html", 390)
    cell = page.locator("#summary tbody td").first
    assert cell.text_content().startswith(name) and cell.bounding_box()["width"] < 390 / 2


def test_a_phone_shows_each_strategys_endpoint_of_the_least_attainment(read_page, folder, found):
    page = read_page(folder / "report.html", 390, 844)
    said = page.locator("figure.first .on-phone text.value").all_text_contents()
    least = {each.strategy: each.attainment for each in standings(found)}
    for name, text in zip(first_names(found), said, strict=True):
        lane = text.split(" % ")[1]
        assert lane in limited(found)
        assert found.latency[name][lane][0].attainment == least[name]


def test_the_sentence_has_a_share_and_its_interval(found):
    (best, *_) = standings(found)
    assert best.interval.low <= best.attainment <= best.interval.high
    assert best.sure.startswith(f"n {best.offered}, 95 % interval ")


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    made, asked = tmp_path_factory.mktemp("long-names"), ""
    for name, (least, most) in LONG.items():
        asked += f"{name}: {{arrivals: poisson, prompt: [{least}, {most}], answer: [20, 60], "
        asked += "budget: {ttft: 300, tpot: 60}}\n"
    (made / "lanes.yaml").write_text(asked)
    services = read_endpoints(made / "lanes.yaml")
    assert compared(made, services=services, rate=8.0, seconds=6.0)[0] == 0
    return made


def test_the_charts_on_a_phone_have_room_for_long_names(open_page, long_names):
    page = open_page(long_names / "report.html", 390)
    page.locator("#verdict details summary").click()
    for chart in page.locator("#verdict .on-phone svg.attainment").all():
        bars = chart.locator("rect").evaluate_all(BOXES)
        assert all(width > 0 for *_, width, _ in bars)
        texts = chart.locator("text").evaluate_all(BOXES)
        assert [box for box in texts if box[0] < -0.5 or box[0] + box[2] > PHONE] == []
        assert not [pair for pair in combinations(texts, 2) if _overlap(*pair)]


def _overlap(one, other):
    """Whether texts overprint each other; lines may touch."""
    across = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    down = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    return across > 0 and down > 4
