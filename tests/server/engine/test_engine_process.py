"""The end of the engine's process."""

from types import SimpleNamespace

import pytest

from headway.server.engine.engine_process import EngineProcess


def test_the_journal_is_closed_although_the_executor_cannot_be():
    def broken():
        raise OSError("a worker would not go")

    closed, sent = [], []
    process = EngineProcess(None, SimpleNamespace(send=sent.append), None)
    engine = SimpleNamespace(
        scheduler=SimpleNamespace(finished=True), executor=SimpleNamespace(close=broken)
    )
    process._make = lambda: (engine, "welcome")
    process._journal = SimpleNamespace(close=lambda: closed.append(True))
    with pytest.raises(OSError, match="would not go"):
        process.serve()
    assert sent == ["welcome"] and closed == [True]
