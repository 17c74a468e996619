"""Debian's chromium, and pages opened in it that may report no error."""

import os
import shutil
from contextlib import contextmanager
from functools import cache

import pytest

CHROMIUM = (
    os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")  # its event loop disturbs the tests of other folders
def browser():
    reason = "browser tests: apt-get install chromium (or CHROMIUM=path) and pip install playwright"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    if not CHROMIUM:
        pytest.skip(reason)
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, "--no-first-run"]
        )
        yield launched
        launched.close()


@contextmanager
def opening(browser):
    """Gives a function that opens a file at a size and in a color scheme. Any error that a page
    reports fails the test, and so does a fetch of anything else."""
    pages, complaints, asked, files = [], [], set(), set()

    def open_(file, width=1280, height=900, scheme="light", **wishes):
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, **wishes
        )
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.add(request.url))
        files.add(file.as_uri())
        page.goto(file.as_uri())
        return page

    yield open_
    for page in pages:
        page.close()
    assert complaints == []
    assert asked == files, "nothing else is fetched"


@pytest.fixture
def open_page(browser):
    """Open a file in a page of the test's own (opening)."""
    with opening(browser) as open_:
        yield open_


@pytest.fixture(scope="module")
def read_page(browser):
    """Open a file in a page that several tests read and none changes (opening)."""
    with opening(browser) as open_:
        yield cache(open_)
