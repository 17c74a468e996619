"""sweep.html in a real browser: no error, lines drawn and switched, no overflow."""

import os
import shutil

import pytest

from headway.commands.simulate import sweep_tables
from tests.commands.simulate.test_sweep import swept

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and sync_playwright),
    reason="browser tests: apt-get install chromium (or CHROMIUM=path) and pip install playwright",
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep-page")
    return folder / "sweep.html", swept(folder, "rate=4,10,16")[2]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def opened(browser, made):
    """Open a page at a width and in a color scheme; any error it reports fails the test."""
    pages, complaints, asked = [], [], []

    def open_(width=1280, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(made[0].as_uri())
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []
    assert set(asked) == {made[0].as_uri()}, "nothing else is fetched"


def test_tables_show_the_values_of_the_json(opened, made):
    page, plain = opened(), made[1]
    tables = {f"latency-{lane}": sweep_tables.latency(plain, lane) for lane in plain["lanes"]}
    tables |= {"throughput-values": sweep_tables.throughput(plain)}
    tables |= {"capacities": sweep_tables.capacities(plain)}
    for name, (head, rows) in tables.items():
        assert page.eval_on_selector_all(f"#{name} thead tr", TEXTS) == [head]
        assert page.eval_on_selector_all(f"#{name} tbody tr", TEXTS) == rows


def test_a_checkbox_switches_its_lines_and_dots_in_every_chart(opened, made):
    page = opened()
    assert page.locator("svg.latency").count() == 2 * len(made[1]["lanes"])
    every = page.locator("path.line.s0:not(.off)").count()
    assert every > 10
    page.locator("#throughput .legend input[data-series=s0]").uncheck()
    assert page.locator("path.line.s0:not(.off)").count() == 0
    assert page.locator("path.line.s0.off").count() == every
    assert page.locator("path.line.s1:not(.off)").count() > 10


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_desktop_in_light_and_dark(opened, width, scheme):
    page = opened(width, scheme)
    page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    verdict, simulated = (
        page.locator(f"#{name}").bounding_box() for name in ("verdict", "simulated")
    )
    assert verdict["y"] < simulated["y"] < 300, "the verdict comes first"
    assert page.locator("section").last.get_attribute("id") == "run", "settings come last"
    wide = page.eval_on_selector_all(
        "main *:not(.scroll *, svg *, pre)",
        "all => all.filter(e => e.getBoundingClientRect().right > innerWidth + 1).length",
    )
    assert wide == 0
