"""One thread for torch in each worker, and in the processes that its tests start."""

import os

# Read once, when torch is imported. Two workers with a thread for every core wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
