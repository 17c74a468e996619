"""Set up for every test: no time limit on an example, and one thread for torch in each worker."""

import os

from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# Read once, when torch is imported. Two workers with a thread for every core wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
