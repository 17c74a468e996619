"""Times of day as the page shows them."""

DAY = 86_400


def clock_time(unix: int) -> str:
    """The time of day of Unix nanoseconds, in UTC so that all viewers see the same page."""
    seconds = unix // 1_000_000_000 % DAY
    return f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"
