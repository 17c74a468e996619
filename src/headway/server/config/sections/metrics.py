"""Who may read /metrics."""

from typing import Annotated

from pydantic import Field

from headway.server.config.sections.section import Section


class MetricsSettings(Section):
    key: Annotated[
        str,
        Field(
            description="The name of the one of `keys` that /metrics is read with, since it says "
            "the names of all. Default: none, it is open."
        ),
    ] = ""
