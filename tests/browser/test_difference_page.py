"""The page of two reports' differences in a real browser."""

from dataclasses import replace

import pytest

from headway.commands.report.report import read_report
from headway.report.difference.difference_page import difference_page
from headway.report.difference.difference_tables import HEAD, cells
from headway.report.difference.pairing import pair_reports
from tests.commands.small_comparison import compared
from tests.commands.testbeds import fake_testbed

TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("difference")
    for name, blocks in (("a", 2_048), ("b", 300)):
        (folder / name).mkdir()
        wishes = {"strategies": "static,continuous-chunk-64", "seconds": 8.0}
        assert compared(folder / name, fake_testbed(blocks=blocks), **wishes)[0] == 0
    reports = [read_report(folder / name / "report.json") for name in ("a", "b")]
    pairing = pair_reports(*reports, ("a", "b"))
    (folder / "page.html").write_text(difference_page(pairing))
    return folder / "page.html", pairing


def test_tables_show_the_differences(read_page, made):
    file, pairing = made
    page = read_page(file, 1280, 800, "light")
    assert page.locator("h1").inner_text().replace("\u00a0", " ") == pairing.answer
    for each in pairing.lanes:
        name = f"difference-{each.strategy}, {each.lane}".replace(" ", "-")
        head, *rows = page.eval_on_selector_all(f"[id='{name}'] tr", TEXTS)
        assert head == HEAD and rows == [cells(change) for change in each.differences]
    dots = page.locator(".on-desk circle.change")
    assert dots.count() == page.locator("#shares tbody tr").count() > 3


@pytest.mark.parametrize("width, height", [(390, 844), (1280, 800)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answer_is_on_the_first_screen(read_page, made, width, height, scheme):
    page = read_page(made[0], width, height, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    place = page.locator("#shares").bounding_box()
    assert place["y"] + place["height"] <= height


def test_a_phone_shows_the_figures_beside_long_names(open_page, made):
    _, pairing = made
    lanes = [replace(each, lane=f"{each.lane}-of-the-customers") for each in pairing.lanes]
    file = made[0].with_name("long.html")
    file.write_text(difference_page(replace(pairing, lanes=lanes)))
    page = open_page(file, 390)
    first = page.locator("#shares tbody td:first-child")
    assert all(each.bounding_box()["width"] <= 390 / 2 for each in first.all())
    assert page.locator("#shares tbody td:nth-child(3)").first.bounding_box()["x"] < 390
    names = page.locator(".on-phone text.name")
    assert len({*names.all_text_contents()}) == names.count() == first.count()
    lefts = names.evaluate_all("all => all.map(each => each.getBBox().x)")
    assert min(lefts) >= -0.5
