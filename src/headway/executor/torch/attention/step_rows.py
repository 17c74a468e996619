"""StepRows: what attention needs to know about a step's rows, on the host."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepRows:
    """Columns with one number per row, in the order of the flat tokens. Padding counts as queries.

    Query i of a row is at position min(starts + i, keys - 1) and sees the keys up to it. Rows of
    one query come first, those with the fewest keys first. Held slots use the table of slot 0,
    which is all scratch block.

        | rows of one query, by keys | row of many queries | row of many queries | ...
        | tokens 0 .. singles - 1    | begins[singles] ..  |
    """

    singles: int  # rows of one query
    slots: Ints  # whose block table the row reads
    begins: Ints  # first flat token
    queries: Ints  # 1 or more
    starts: Ints  # position of the first query
    keys: Ints  # how many keys the last query sees, without a window
