"""The marker that a generator yields for an item that ends before the others in its call (DONE)."""


class DONE:
    """Yield this class itself in an item's place when no more pieces come for that item."""
