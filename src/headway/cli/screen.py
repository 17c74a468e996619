"""The terminal that commands print to."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from headway.printable import harmless


class Screen(Console):
    """A console on which a name or a server's text cannot control the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with what would control the terminal escaped in all texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def screen() -> Console:
    """It prints names as users gave them: no part of them is markup, as in '[red]voice'."""
    return Screen(markup=False, emoji=False)
