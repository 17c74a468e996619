"""`metrics`: who may read /metrics."""

from typing import Annotated

from pydantic import Field

from headway.server.config.sections.section import Section


class MetricsSettings(Section):
    """The `metrics` section."""

    key: Annotated[
        str,
        Field(
            description="Name of the key that may read /metrics, which shows the names of "
            "all keys. Default: none; /metrics is open."
        ),
    ] = ""
