"""Tables that a screen reader can read, and the one place where text becomes markup."""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Markup. Any other text is escaped before it becomes part of the page."""

    __slots__ = ()


Cell = str | Html


def html(value: Cell) -> Html:
    """The value as markup; text is escaped."""
    return value if isinstance(value, Html) else Html(escape(value))


def joined(parts: Iterable[Cell]) -> Html:
    """The parts as markup, one after another."""
    return Html("".join(map(html, parts)))


def wrapped(tag: str, kind: str, *parts: Cell) -> Html:
    """An element with a class and these contents. tag, kind: trusted text, not escaped."""
    return Html(f'<{tag} class="{kind}">{joined(parts)}</{tag}>')


def table(
    name: str,
    caption: str,
    head: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    words: int = 1,
) -> Html:
    """A scrolling table that a screen reader can read.

    name: its id. head: each column's heading, and its meaning (may be empty). rows: each row's id
    (empty: none) and its cells; the first cell is the row's heading. words: how many columns, from
    the left, hold words; the others hold numbers.
    """

    def kind(column: int) -> str:
        return ' class="words"' if column < words else ""

    top = "".join(
        f'<th scope="col"{kind(k)}'
        + (f' title="{escape(meaning)}"' if meaning else "")
        + f">{escape(heading)}</th>"
        for k, (heading, meaning) in enumerate(head)
    )
    body = "".join(
        f"<tr{_id(id)}>"
        + "".join(
            f'<th scope="row" class="words">{html(cell)}</th>'
            if k == 0
            else f"<td{kind(k)}>{html(cell)}</td>"
            for k, cell in enumerate(cells)
        )
        + "</tr>"
        for id, cells in rows
    )
    return Html(
        f'<div class="scroll" id="{escape(name)}-scroll" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table id="{escape(name)}"><caption class="unseen">'
        f"{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _id(id: str) -> str:
    return f' id="{escape(id)}"' if id else ""
