"""What is logged, and how."""

from typing import Annotated, Literal

from pydantic import Field

from headway.server.config.sections.section import Section


class LogSettings(Section):
    format: Annotated[
        Literal["console", "json"],
        Field(description="Lines for people, or an object of JSON each."),
    ] = "console"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Field(description="The least that is logged. debug has probes and every refusal."),
    ] = "info"
    access: Annotated[
        bool, Field(description="A line for each HTTP request, when it has been answered.")
    ] = True
