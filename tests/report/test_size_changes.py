"""Changes of sizes that follow the load: in the JSON of the report, and in a table."""

import json
import re
from dataclasses import replace

from headway.core.cost.step_cost import StepCost
from headway.core.lane import Budget, Lane, Share
from headway.core.ledger import SizeChange
from headway.core.policies.join import Continuous
from headway.core.policies.policies import Policies
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine
from headway.executor.fake import FakeExecutor
from headway.report import report_json
from headway.report.analysis import Analysis
from headway.report.page.page import page
from headway.report.size_changes import size_changes
from headway.report.terminal_tables import sizes_table
from headway.runs.outcome import outcome_of
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox, arrivals
from headway.strategies.strategy import Strategy
from tests.commands.small_comparison import compared
from tests.report.test_terminal_tables import printed
from tests.traces import BLOCK, MS, ask

LANE = Lane("chat", Budget(tpot=1_000 * MS), slots=Share(0, 6, 1))
POLICIES = Policies(Continuous(8))


def served(lane):
    """The outcome of forty requests that all come at once."""
    scheduler, clock = Scheduler(Settings(500, BLOCK, (lane,), POLICIES)), VirtualClock()
    asked = [ask(f"r{i}", (i,), 4, lane="chat") for i in range(40)]
    executor = PricedExecutor(StepCost.of(10 * MS), clock, FakeExecutor(500, BLOCK))
    engine = Engine(scheduler, executor, TraceInbox(arrivals(asked), clock), clock)
    while not scheduler.finished:
        engine.step()
    return outcome_of(scheduler, asked, 5 * MS)


def kept(lane, path):
    report = report_json.Report({}, {"chat": lane}, {"mine": (served(lane),)})
    report_json.write(report, [Strategy("mine", "as it is", POLICIES)], {}, path)
    return report.outcomes["mine"], report_json.read(path).outcomes["mine"]


def test_each_change_is_in_the_json_with_its_reason_and_its_time_in_the_run(tmp_path):
    path = tmp_path / "report.json"
    made, found = kept(LANE, path)
    assert found.changes == made.changes and len(made.changes) >= 3
    first = made.changes[0]
    assert first == SizeChange("chat", "slots", 1, 2, first.reason, made.requests[7].finished)
    (strategy,) = json.loads(path.read_text())["strategies"]
    assert strategy["size_changes"]["columns"] == [
        *("lane", "what", "before", "after", "reason", "at")
    ]


def test_a_run_whose_sizes_are_fixed_has_no_size_changes(tmp_path):
    path = tmp_path / "report.json"
    _, found = kept(replace(LANE, slots=Share(0, 6)), path)
    assert found.changes == () and "size_changes" not in path.read_text()


def test_the_table_says_where_each_size_began_ended_and_went():
    moves = [(4, 5), (5, 6), (6, 5)]
    slots = [SizeChange("support-drafts", "slots", *each, "as it is", 0) for each in moves]
    window = SizeChange("", "window", 5_000_000, 6_250_000, "as it is", 0)
    said = printed(sizes_table({"static": (), "dynamic-lanes": (slots[0], window, *slots[1:])}))
    assert ["dynamic-lanes", "support-drafts", "slots", "4", "5", "4", "6", "3"] in said
    assert ["dynamic-lanes", "all", "window", "5", "6.25", "5", "6.25", "1"] in said
    assert not any("static" in line for line in said)


def test_the_page_has_the_same_table_where_a_size_changed(tmp_path):
    assert compared(tmp_path, strategies="static,continuous-mixed")[0] == 0
    plain = report_json.read(tmp_path / "report.json")
    assert 'id="size-changes"' not in page(Analysis(plain))
    moves = [SizeChange("voice", "slots", *each, "as it is", 0) for each in [(4, 5), (5, 3)]]
    runs = {
        name: (replace(each, changes=tuple(moves) if name == "static" else ()),)
        for name, (each,) in plain.runs.items()
    }
    text = page(Analysis(replace(plain, runs=runs)))
    table = text[text.index('id="size-changes"') :].split("</table>")[0]
    cells = re.findall(r"<t[dh]\b[^>]*>([^<]*)", table)
    head, ((*row,),) = size_changes({"static": moves})
    assert cells == [*head, *row] and row[3:] == ["4", "3", "3", "5", "2"]
