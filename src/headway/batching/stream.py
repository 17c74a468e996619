"""What a generator yields for an item that has ended before its neighbours (DONE)."""


class DONE:
    """Yielded in an item's place: nothing more comes for it. The class itself is yielded."""
