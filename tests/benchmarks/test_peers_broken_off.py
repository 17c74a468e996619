"""benchmarks.peers keeps what it had measured when it is interrupted."""

import signal
import sys

from benchmarks.peers import __main__ as peers
from benchmarks.peers.contestants import Contestant, Stage
from tests.benchmarks.test_peers_benchmark import measured


def test_what_was_measured_is_printed_without_figures(monkeypatch, tmp_path, capsys):
    def one_run(stage, contestants, workloads, options):
        contestants[0].runs.extend(measured("headway", "16bit", 5.0).runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(peers, "bound", lambda workloads, threads: {})
    monkeypatch.setattr(peers, "measure", one_run)
    monkeypatch.setattr(Stage, "contestants", lambda *_: [Contestant("headway", "16bit")])
    monkeypatch.setattr(sys, "argv", ["peers", "--out", str(tmp_path)])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert peers.main() == 130
    said = capsys.readouterr().out
    assert "broken off" in said and " 5 " in said and "batch32_16bit_vs_best" not in said
