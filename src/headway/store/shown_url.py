"""A store's URL as it may be shown: without its passwords."""

import re
from urllib.parse import unquote_plus

SECRETS = frozenset({"password", "sslpassword"})  # parameters of libpq
_USER = re.compile(r"([^:/]*)(?::[^@]*)?@(.*)", re.DOTALL)


def without_password(where: str) -> str:
    """The URL without the password of its user and those in its query. A path is left as it is."""
    scheme, mark, rest = where.partition("://")
    if not mark:
        return where
    user, host = found.groups() if (found := _USER.fullmatch(rest)) else ("", rest)
    host, _, query = host.partition("?")
    host = host.rpartition("@")[2]  # what is before an @ belongs to the password
    shown = "&".join([each for each in query.split("&") if _name(each) not in SECRETS])
    return f"{scheme}://{user}{'@' if found else ''}{host}{'?' if shown else ''}{shown}"


def _name(parameter: str) -> str:
    return unquote_plus(parameter.partition("=")[0])
