"""Read the query parameters of lists."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from headway.server.protocol.problem import wrong


def page_of(
    query: Mapping[str, str], default: int, most: int, others: Sequence[str] = ()
) -> tuple[str, int]:
    """`after` and `limit`. others: further parameters that this list takes. Raises Problem."""
    known = "after", "limit", *others
    for name in query:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            why = f"'{name[:100]}' is not a known parameter: {hint}"
            raise wrong(why, name[:100], "unknown_parameter")
    limit = query.get("limit", str(default))
    is_number = limit.isascii() and limit.isdecimal() and len(limit) < 9
    if not (is_number and 1 <= int(limit) <= most):
        raise wrong(f"'limit' must be from 1 to {most}", "limit", "invalid_value")
    return query.get("after", ""), int(limit)


def one_of(query: Mapping[str, str], name: str, values: Sequence[str]) -> str:
    """The parameter's value, one of `values`; the first is the default. Raises Problem."""
    if (value := query.get(name, values[0])) not in values:
        raise wrong(f"'{name}' must be {' or '.join(values)}", name, "invalid_value")
    return value
