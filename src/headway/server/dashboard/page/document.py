"""The whole page, and the part of it that the script fetches again (fragment)."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from headway.report.page.html_parts import asset
from headway.server.dashboard.page.batch_table import batch
from headway.server.dashboard.page.charts import charts
from headway.server.dashboard.page.headline import headline
from headway.server.dashboard.page.html_table import Html
from headway.server.dashboard.page.lane_table import lane_table
from headway.server.dashboard.page.slow_requests import slow_requests
from headway.server.dashboard.page.times import clock_time
from headway.server.dashboard.page.versions import versions_section
from headway.server.dashboard.view import ModelView, View

PATH = "/dashboard"


@cache
def style() -> str:
    """The style sheet: the reports' one, then this page's own rules."""
    return asset("report.css") + _own("dashboard.css")


@cache
def script() -> str:
    """The script that fetches the fragment and puts it into the page."""
    return _own("dashboard.js")


@cache
def policy() -> str:
    """The Content-Security-Policy: it allows our one style sheet and one script, by hash."""
    return (
        f"default-src 'none'; style-src {_hash(style())}; script-src {_hash(script())}; "
        "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def document(view: View, contents: Html) -> str:
    """The page, which is complete without scripts, too. contents: the view's fragment."""
    told = headline(view)
    out = (
        f'<form method="post" action="{PATH}/sign-out"><button>Sign out</button></form>'
        if view.signed_in
        else ""
    )
    who = f'<span class="who">{escape(view.key)}</span>' if view.key else ""
    return _framed(
        "headway: dashboard",
        f'<a class="skip" href="#page">To the page</a><nav aria-label="Page"><b>headway</b>{who}'
        '<label id="live-box" hidden><input type="checkbox" id="live" checked> Live</label>'
        f'<a href="{PATH}">Reload</a>{out}</nav>'
        f'<p id="said" class="unseen" role="status">{escape(told.spoken)}</p>'
        f'<p id="stale" role="alert" class="warning"></p><main id="page">{contents}</main>'
        f"<script>{script()}</script>",
    )


def sign_in(problem: str = "") -> str:
    """The sign-in page, a form for a key. problem: what was wrong with the last key."""
    wrong = f'<p class="warning" role="alert">{escape(problem)}</p>' if problem else ""
    return _framed(
        "headway: sign in",
        '<main id="sign-in"><h1>headway</h1>'
        f'<form method="post" action="{PATH}/sign-in">{wrong}'
        '<input class="unseen" name="user" value="headway" autocomplete="username" readonly '
        'tabindex="-1" aria-hidden="true">'  # a browser's password store files the key under it
        '<label for="key">API key</label><input id="key" name="key" type="password" '
        'autocomplete="current-password" required autofocus><button>Sign in</button>'
        '<p class="note">You will see the lanes that the key may use, and the requests of its '
        "tenant.</p></form></main>",
    )


def _framed(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{style()}</style></head><body>{body}</body></html>\n"
    )


def fragment(view: View) -> Html:
    """The contents of <main>."""
    told = headline(view)
    kind = "bad" if told.is_bad else "fine"
    rest = f'<p class="lead">{escape(told.rest)}</p>' if told.rest else ""
    first = (
        f'<section id="now"><h1 class="{kind}" data-said="{escape(told.spoken)}">'
        f'{escape(told.verdict)}</h1>{rest}<p class="eyebrow">As of {clock_time(view.now)}</p>'
    )
    several = len(view.models) > 1
    lanes = "".join(_titled(m, several, lane_table(m, f"lanes-{k}")) for k, m in _all(view))
    batches = "".join(_titled(m, several, batch(m, f"batch-{k}")) for k, m in _all(view))
    series = "".join(_titled(m, several, charts(m)) for _, m in _all(view))
    return Html(
        f"{first}{lanes}</section>"
        f'<section id="batch"><h2>{_batch_title(view)}</h2>{batches}</section>'
        f'<section id="time"><h2>Over time</h2>{series}</section>'
        f"{versions_section(view.versions)}"
        f"{_slow(view)}"
    )


def _batch_title(view: View) -> str:
    return "Batch" if all(model.is_function for model in view.models) else "Batch and memory"


def _slow(view: View) -> str:
    if not view.explains:
        return ""
    return f'<section id="slow"><h2>Slow requests</h2>{slow_requests(view)}</section>'


def _all(view: View) -> list[tuple[int, ModelView]]:
    return list(enumerate(view.models))


def _titled(model: ModelView, several: bool, part: Html) -> str:
    """The part, under the model's name if there are several models."""
    return f'<h3 class="model">{escape(model.name)}</h3>{part}' if several else part


def _own(name: str) -> str:
    found = files("headway") / "server" / "dashboard" / "page" / "assets" / name
    return found.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
