"""The process's limit on open files and connections."""

import resource


def raise_limit(wanted: int) -> int:
    """Raise the descriptor limit to `wanted`, as far as the system allows. Never lower it.

    Returns the limit now in force, or `wanted` if there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS has a further limit, below the hard one
        return soft
    return most
