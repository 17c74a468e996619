"""sweep.html in a real browser: no error, lines drawn and switched, no overflow."""

import pytest

from headway.commands.simulate import sweep_tables
from tests.commands.simulate.test_sweep import swept

TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep-page")
    return folder / "sweep.html", swept(folder, "rate=4,16", seconds=5.0)[2]


@pytest.fixture
def opened(open_page, made):
    return lambda width=1280, scheme="light": open_page(made[0], width, scheme=scheme)


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
