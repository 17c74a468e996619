"""The open requests as a table, with figures of the batch and of KV memory."""

from html import escape

from headway.report.formatting import duration, share
from headway.server.dashboard.page.headline import MINUTES
from headway.server.dashboard.page.html_table import Html, table
from headway.server.dashboard.view import ModelView, RunningRow

HEAD = (
    ("Lane", ""),
    ("State", ""),
    ("Prompt", "Tokens"),
    ("Generated", "Tokens that have come, of those that may come"),
    ("Age", "Since it arrived"),
    ("Request", ""),
)
NOTE = (
    "As the front knows it, from the latest step that it has heard of. A request without a token "
    "waits in its lane, or its prompt is being computed: which of the two, and how much of the "
    "prompt is done, only the engine knows. One that generates may have been preempted since."
)


def batch(model: ModelView, name: str) -> Html:
    """Figures of the batch and of memory, and a row for each open request of the caller.

    name: the table's id. A function has only the figures.
    """
    figures = _figures(model)
    if model.is_function:
        return Html(figures)
    rows = [(f"open-{row.id}", _cells(row)) for row in model.rows]
    empty = '<p class="note">None of your requests is open.</p>'
    shown = table(name, f"Open requests of {model.name}", HEAD, rows, words=2) if rows else empty
    more = []
    if model.mine > len(model.rows):
        more.append(f"{model.mine - len(model.rows)} more of yours")
    if model.others:
        more.append(f"{model.others} of others, which your key does not see")
    rest = f'<p class="note">And {" and ".join(more)}.</p>' if more else ""
    return Html(f'{figures}{shown}{rest}<p class="note">{NOTE}</p>')


def _figures(model: ModelView) -> str:
    size = f"{model.batch:.1f} of {model.slots}" if model.batch is not None else "-"
    told = [
        ("Running", f"{model.running} of {model.slots} slots"),
        ("Waiting", str(model.waiting)),
        (f"Mean batch, {MINUTES}", f"{size} ({model.steps} steps)"),
    ]
    if model.num_blocks:
        used = share(model.blocks / model.num_blocks)
        told.append(("KV blocks in use", f"{used} ({model.blocks} of {model.num_blocks})"))
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in told
    )
    return f'<dl class="figures">{pairs}</dl>'


def _cells(row: RunningRow) -> list[str]:
    state = "generating" if row.generated else "no token yet"
    tokens = f"{row.generated} of {row.most}"
    return [row.lane, state, str(row.prompt), tokens, duration(row.age), row.id]
