"""Held: a function whose calls wait, so that a test decides which items the next call has."""

import threading


class Held:
    """A function of a list whose calls wait until they are let go."""

    def __init__(self, function=lambda items: items):
        self.function, self.calls = function, []
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, items):
        self.calls.append(list(items))
        self.began.release()
        assert self.go.acquire(timeout=30)
        return self.function(items)

    def free(self):
        self.go.release(1_000)
