"""The live page in a real browser: light and dark, phone and desk, keyboard, refresh, sign-in."""

import httpx2
import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.dashboard import board
from tests.server.running_server import fake, serving

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=60_000)  # its default of 5 s is too short for a busy machine

HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"
LANES = {"voice": {"ttft": "1h"}, "chat": {"ttft": "1ns"}, "w" * 64: {}}
KEY = "hw-of-a-test"


def config_of(**more):
    return ServerConfig(lanes=LANES, models=[{"name": HOSTILE}], **more)


def ask(url, lane="chat", **headers):
    headers = {"x-headway-lane": lane, **headers}
    body = {"prompt": [5, 6, 7], "max_tokens": 3}
    answer = httpx2.post(f"{url}/v1/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def url():
    with serving(config_of(), fake) as (url, _):
        for k in range(4):
            ask(url, "voice" if k % 2 else "chat", **{"x-request-id": f"{HOSTILE}{k}"})
        yield url


@pytest.fixture(scope="module")
def locked():
    keys = [{"name": "ann", "sha256": digest(KEY).hex()}]
    with serving(config_of(keys=keys), fake) as (url, _):
        ask(url, "voice", authorization=f"Bearer {KEY}")
        yield url


@pytest.fixture
def visit(browser, monkeypatch):
    """Open the page. Any error that it reports fails the test, and so does any other host."""
    monkeypatch.setattr(board, "FRESH", 0)
    contexts, complaints, asked, homes = [], [], [], []

    def visit_(url, width=1280, scheme="light", **wishes):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(viewport=viewport, color_scheme=scheme, **wishes)
        contexts.append(context)
        homes.append(url)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{url}/dashboard")
        return page

    yield visit_
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(each.startswith((*homes, "data:")) for each in asked)


def refreshed(page, act=lambda: None):
    """Do `act`, then wait until the page has fetched its figures again."""
    act()
    with page.expect_response("**/dashboard/live"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#stale")).to_be_empty()


def ended_cell(page, lane):
    """The cell with the n of the lane in the table.

    Waits go by `expect`: the page's policy forbids the eval that `wait_for_function` polls with.
    """
    row = page.locator("#lanes-0 tbody tr", has=page.locator("th", has_text=lane))
    return row.locator("td").nth(1)


def ended(page, lane):
    return int(ended_cell(page, lane).inner_text())


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_desktop_in_light_and_dark(visit, url, width, scheme):
    page = visit(url, width, scheme)
    page.locator(".slow summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        ".map(c => c.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b))"
    )
    assert (ink < paper) is (scheme == "light") and abs(ink - paper) > 450
    first = page.locator("h1").bounding_box()
    assert first["y"] + first["height"] < 450, "the answer is on the first screen"
    assert page.locator("svg.chart").count() >= 6


def test_hostile_names_are_shown_as_text(visit, url):
    page = visit(url)
    assert page.locator("img").count() == 0
    page.locator(".slow summary").first.click()
    assert HOSTILE in page.locator(".slow details").first.inner_text()
    assert page.locator(
        f'[aria-label="Lanes of {HOSTILE.replace(chr(34), chr(92) + chr(34))}"]'
    ).count()


def test_figures_change_by_themselves_and_the_focus_stays(visit, url):
    page = visit(url)
    before = ended(page, "voice")
    page.locator(".slow summary").first.focus()
    page.keyboard.press("Enter")
    opened = page.evaluate("document.activeElement.closest('details').id")
    box, top = page.locator("#batch").bounding_box(), page.evaluate("scrollY")
    refreshed(page, lambda: [ask(url, "voice"), ask(url, "chat")])
    expect(ended_cell(page, "voice")).to_have_text(str(before + 1))
    assert page.evaluate("document.activeElement.closest('details').id") == opened
    assert page.locator(f'[id="{opened}"]').get_attribute("open") is not None
    assert page.locator("#batch").bounding_box() == box and page.evaluate("scrollY") == top


def test_the_keyboard_reaches_everything(visit, url):
    page = visit(url)
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if page.evaluate("!!document.activeElement.closest('.slow')"):
            break
    assert seen[0] == "A" and {"live", "lanes-0-scroll", "SUMMARY"} <= set(seen)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    details = page.locator(".slow details[open]")
    assert details.count() == 1 and details.locator("table tbody tr").last.is_visible()
    page.keyboard.press("Enter")
    assert details.count() == 0


def test_the_stages_of_a_slow_request_fill_its_bar(visit, url):
    page = visit(url)
    bar = page.locator(".slow svg.bar").first
    widths = bar.locator("rect").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    assert sum(widths) == pytest.approx(bar.bounding_box()["width"], abs=2)
    assert bar.locator("rect").first.evaluate("e => getComputedStyle(e).fill") != "rgb(0, 0, 0)"


def test_updates_can_be_paused(visit, url):
    page = visit(url)
    page.locator("#live").uncheck()
    before = ended(page, "voice")
    ask(url, "voice")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert ended(page, "voice") == before
    with page.expect_response("**/dashboard/live"):
        page.locator("#live").check()
    expect(ended_cell(page, "voice")).to_have_text(str(before + 1))


def test_without_javascript_the_page_is_whole_and_has_a_link_to_reload(visit, url):
    page = visit(url, java_script_enabled=False)
    assert page.locator("h1").is_visible() and page.locator("#lanes-0").is_visible()
    assert not page.locator("#live").is_visible()
    page.locator(".slow summary").first.click()
    assert page.locator(".slow details table").first.is_visible()
    page.get_by_role("link", name="Reload").click()
    assert page.url == f"{url}/dashboard"


def test_the_page_says_not_up_to_date_while_the_server_does_not_answer(visit, url):
    page = visit(url)
    page.evaluate("() => { kept = fetch; fetch = () => Promise.reject(new Error('gone')); }")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#stale", has_text="Not up to date").wait_for()
    page.evaluate("() => { fetch = kept; }")
    refreshed(page)


def test_signing_in_sets_a_strict_cookie_and_signing_out_locks_the_page(visit, locked):
    page = visit(locked)
    assert page.url == f"{locked}/dashboard/sign-in"
    assert page.evaluate("document.activeElement.id") == "key"
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    page.locator("#lanes-0").wait_for()
    assert page.url == f"{locked}/dashboard" and "ann" in page.locator("nav").inner_text()
    assert KEY not in page.content() and page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/dashboard"
    refreshed(page)
    page.get_by_role("button", name="Sign out").click()
    page.locator("#key").wait_for()
    page.goto(f"{locked}/dashboard")
    assert page.url.endswith("/sign-in")
