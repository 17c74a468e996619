"""What kept a waiting request out of a step (Rule)."""

from enum import IntEnum


class Rule(IntEnum):
    """What kept the request out. The value is the rule's place in a list of totals."""

    NEXT_STEP = 0  # it came while a step was computed, and none has been decided since
    SLOTS = 1  # all slots are taken
    BLOCKS = 2  # its KV blocks are not free, or memory would not suffice later on
    LANE = 3  # its lane has all slots or blocks that it may have
    WINDOW = 4  # its group is not full, and its window is not over
    GROUP = 5  # an exclusive group runs
    STEP = 6  # the step has no tokens or no time left for its prompt
    ORDER = 7  # it stands behind a request for which blocks are kept
    PREFIX = 8  # another computes the prompt, or the prefix, that it shares
    PREEMPTING = 9  # the step takes blocks from a sequence of its lane, or of an earlier tier
    RELEGATED = 10  # it can no longer keep its budget: requests in time go first

    @property
    def stage(self) -> str:
        """The stage of a request that waits under this rule."""
        return f"queue.{self.name.lower()}"
