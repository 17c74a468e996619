"""A course without stages: the test ends the items and moves the clock."""

from itertools import count

from headway.core.lane import Budget
from headway.core.ledger import RequestRow, StepRow
from headway.core.request import NEVER, Finish
from headway.pipelines.course import Course, Place
from headway.pipelines.graph import Program
from headway.pipelines.pace import Pace
from headway.pipelines.split import Learned
from headway.pipelines.workflow import Outcome, Workflow

LEARNED = Learned()


class FakePort:
    """Holds items until the test ends them."""

    def __init__(self, rate=0.0):
        self.held, self.dropped, self.rate, self.fails = [], set(), rate, None

    def offer(self, works):
        if self.fails:
            raise self.fails
        self.held += works

    def drop(self, works):
        self.dropped |= {id(work) for work in works}

    def drain(self):
        return self.rate


def f(items):
    return items


class Rig:
    """A course with fake ports, and a clock that the test moves."""

    def __init__(self, graph, split=LEARNED, max_waiting=1_000):
        program = Program.of(graph)
        self.ports = [FakePort() for _ in program.stages]
        self.rows, self.now, self.numbers, self.step = [], 0, count(1), count(1)
        places = [Place(f"s{at}", port, Pace(4, max_waiting)) for at, port in enumerate(self.ports)]
        self.course = Course(program, places, split, self.rows.append)
        self.answers = []

    def begin(self, value, end_by=NEVER):
        workflow = Workflow(str(next(self.numbers)), self.now, end_by)
        self.course.begin(workflow, value, self.now)
        self.answers += self.course.take_answers()
        return workflow

    def end(self, work, value=None, error=None, begun=None):
        """End an item. A dropped item ends as cancelled, as in an engine."""
        port = self.ports[work.stage]
        port.held.remove(work)
        finish = Finish.ERROR if error else Finish.COMPUTED
        if id(work) in port.dropped:
            value, error, finish = None, RuntimeError("dropped"), Finish.CANCELLED
        begun = work.entered if begun is None else begun
        row = ended_row(work, finish, begun, self.now)
        step = StepRow(next(self.step), begun, self.now - begun, 0, 1, 1, 1, 0, 0, 0, 0, 9)
        self.course.ended(work, Outcome(value, error, finish, row, step), self.now)
        self.answers += self.course.take_answers()


def ended_row(work, finish, begun, now):
    times = (work.entered, begun, NEVER, NEVER, now)
    return RequestRow("", "default", Budget(), finish, *times, 1, 0, 0, 0, 0, now - begun)
