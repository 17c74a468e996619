"""How the engine process closes its parts."""

import pytest

from headway.errors import HeadwayError
from headway.live.clock import WallClock
from headway.server.engine import engine_process
from headway.server.engine.engine_process import EngineProcess
from headway.server.engine.messages import EngineOptions


class Channel:
    def send(self, message):
        pass


def test_after_a_failed_start_the_journal_and_the_executor_are_closed(tmp_path, monkeypatch):
    """The journal is closed first. The executor is closed although closing the journal raises."""
    closed = []

    def ends(name):
        closed.append(name)
        raise OSError(f"{name} would not go")

    def broken(*given):
        raise HeadwayError("no engine")

    load, begun = engine_process.load, engine_process.begun

    def loaded(*given):
        made = load(*given)
        monkeypatch.setattr(made.executor, "close", lambda: ends("executor"))
        return made

    def kept(*given):
        made = begun(*given)
        close = made.close
        monkeypatch.setattr(type(made), "close", lambda journal: (close(), ends("journal")))
        return made

    monkeypatch.setattr(engine_process, "load", loaded)
    monkeypatch.setattr(engine_process, "begun", kept)
    options = EngineOptions(context=256, slots=2, threads=1, journal=str(tmp_path / "j.jsonl"))
    process = EngineProcess(options, Channel(), engine_process.CountingInbox(WallClock()))
    monkeypatch.setattr(process, "_engine", broken)
    with pytest.raises(HeadwayError, match="no engine"):
        process.serve()
    with pytest.raises(OSError, match="executor would not go"):
        process.close()
    assert closed == ["journal", "executor"]
