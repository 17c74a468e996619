"""Set up for every test: what Hypothesis draws, and one thread for torch in each worker."""

import os

from hypothesis import settings

# Examples have no time limit: how long one takes depends on what else the machine does. The suite
# draws the same examples in every run, so it passes or fails for everybody; `make soak` looks on.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=3_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Read once, when torch is imported. Two workers with a thread for every core wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
