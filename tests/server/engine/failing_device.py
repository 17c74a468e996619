"""An engine process whose device fails at one token, and permanently at another."""

BAD, WORST = 77, 78
WHY = "the device has failed"


class Faulty:
    """Replaces EngineOptions: unpickling it gives the options and breaks the executor."""

    daemon = True

    def __init__(self, options):
        self.options = options

    def __reduce__(self):
        return broken, (self.options,)


def broken(options):
    from headway.executor.torch.runner import TorchExecutor

    submit = TorchExecutor.submit

    def fails(self, batch):
        ticket = submit(self, batch)
        self.dead = getattr(self, "dead", False) or any(WORST in row.tokens for row in batch.rows)
        if self.dead or any(BAD in row.tokens for row in batch.rows):
            raise RuntimeError(WHY)
        return ticket

    TorchExecutor.submit = fails
    return options
