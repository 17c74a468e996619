"""StepRows: what attention needs to know of a step's rows, on the host."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepRows:
    """Columns of one number per row, in the order of their flat tokens; padding is counted in.

    Query i of a row stands at position min(starts + i, keys - 1) and sees the keys up to it. The
    rows of one query come first, the fewest keys first. Held slots have the table of slot 0, which
    is the scratch block throughout.

        | rows of one query, by keys | row of many queries | row of many queries | ...
        | tokens 0 .. singles - 1    | begins[singles] ..  |
    """

    singles: int  # rows of one query
    slots: Ints  # whose block tables they read
    begins: Ints  # their first flat token
    queries: Ints  # 1 or more
    starts: Ints  # position of the first query
    keys: Ints  # that are attended to, at most
