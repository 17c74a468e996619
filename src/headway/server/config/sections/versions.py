"""`versions`: where the versions of the configuration are kept."""

from typing import Annotated

from pydantic import Field, PlainSerializer

from headway.server.config.sections.jobs import without_password
from headway.server.config.sections.section import Section


class VersionSettings(Section):
    """The `versions` section. Without a store the file's configuration is the only one."""

    store: Annotated[
        str,
        PlainSerializer(without_password),
        Field(
            description="Versions of the strategy and the lanes are kept here: a file of SQLite or "
            "postgresql://USER@HOST/NAME; it may be the one of jobs. Default: there are none."
        ),
    ] = ""
