"""Times of day as the page shows them."""

DAY = 86_400


def clock_time(unix: int) -> str:
    """Of Unix nanoseconds, in UTC: the page is the same for everybody who looks at it."""
    seconds = unix // 1_000_000_000 % DAY
    return f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
