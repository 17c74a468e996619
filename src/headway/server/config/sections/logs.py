"""`logs`: what is logged, and in which format."""

from typing import Annotated, Literal

from pydantic import Field

from headway.server.config.sections.section import Section


class LogSettings(Section):
    """The `logs` section."""

    format: Annotated[
        Literal["console", "json"],
        Field(description="console: lines for people. json: one JSON object per line."),
    ] = "console"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(
            description="The lowest level that is logged. debug includes probes, the live page's "
            "refreshes and every refusal."
        ),
    ] = "info"
    access: Annotated[
        bool, Field(description="One line per HTTP request, when it has been answered.")
    ] = True
