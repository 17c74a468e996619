"""The function, for `headway serve`."""

import headway
from benchmarks.batcher.contender import MOST_WAITING, SIZE, function

work = headway.batch(size=SIZE, max_waiting=MOST_WAITING)(function)
