"""What the paths of lists are asked with."""

from collections.abc import Mapping, Sequence

from headway.server.protocol.problem import wrong


def page_of(query: Mapping[str, str], default: int, most: int) -> tuple[str, int]:
    """`after` and `limit`. Raises Problem."""
    limit = query.get("limit", str(default))
    is_number = limit.isascii() and limit.isdecimal() and len(limit) < 9
    if not (is_number and 1 <= int(limit) <= most):
        raise wrong(f"'limit' must be from 1 to {most}", "limit", "invalid_value")
    return query.get("after", ""), int(limit)


def one_of(query: Mapping[str, str], name: str, values: Sequence[str]) -> str:
    """The first of these is the default. Raises Problem."""
    if (value := query.get(name, values[0])) not in values:
        raise wrong(f"'{name}' must be {' or '.join(values)}", name, "invalid_value")
    return value
