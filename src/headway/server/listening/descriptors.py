"""How many files and connections the process may have open."""

import resource


def raised(wanted: int) -> int:
    """The limit on descriptors, which is raised as far as the system lets it where it is less than
    so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS has a limit of its own below the hard one
        return soft
    return most
