"""Each policy answers its one question."""

import pytest

from headway.core.kv.blocks import BlockPool
from headway.core.lane import Lane, Line
from headway.core.policies.chunk import Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Start, Static
from headway.core.policies.mix import Alternate, PrefillFirst
from headway.core.policies.order import FirstCome, Priority
from headway.core.policies.policies import CHUNK, Policies, usual, whole_prompts
from headway.core.policies.preempt import Youngest
from headway.core.request import NEVER, Request
from headway.core.sequences.sequence import Sequence
from headway.core.settings import Settings
from headway.core.view import View
from headway.errors import SettingError


def some(*numbers):
    return [Sequence(n, Request(f"r{n}", (1,), 1, n), [1]) for n in numbers]


def line(name, *arrived, priority=0):
    """A lane's waiting line, numbered by arrival."""
    made = Line(Lane(name, priority=priority))
    for sequence in some(*arrived):
        made.insert(sequence)
    return made


def view(*arrived, running=0, now=0, **rest):
    return View(now, (line("chat", *arrived),), some(*range(running)), **rest)


def shape(start):
    return (
        start.count,
        start.exclusive,
        sorted(sequence.number for sequence in start.first),
        start.wake_at,
    )


@pytest.mark.parametrize(
    "join, seen, start",
    [
        (Static(3), view(0, 1), (0, False, [], NEVER)),
        (Static(3), view(0, 1, 2, 3), (3, True, [], NEVER)),
        (Static(3), view(0, 1, 2, 3, running=1), (0, False, [], NEVER)),
        (Static(3), view(0, 1, closing=True), (2, True, [], NEVER)),
        (Static(3), view(closing=True), (0, False, [], NEVER)),
        (Dynamic(3, 10), view(), (0, False, [], NEVER)),
        (Dynamic(3, 10), view(5, 6, 7, now=7), (3, True, [], NEVER)),
        (Dynamic(3, 10), view(5, 9, now=14), (0, False, [], 15)),
        (Dynamic(3, 10), view(5, 9, now=15), (2, True, [5], NEVER)),
        (Dynamic(3, 10), view(5, 9, now=9, closing=True), (2, True, [], NEVER)),
        (Dynamic(3, 10), view(5, 9, now=99, running=1), (0, False, [], NEVER)),
        (Dynamic(3, 10, {"chat": 2}), view(5, now=6), (0, False, [], 7)),
        (Continuous(4), view(1, 2, 3, running=2), (2, False, [], NEVER)),
        (Continuous(4), view(1, 2, 3, running=5), (0, False, [], NEVER)),
        (Continuous(4), view(), (0, False, [], NEVER)),
    ],
)
def test_each_join_policy_starts_the_expected_requests(join, seen, start):
    assert shape(join.start(seen)) == start


def test_each_lane_has_its_window_and_the_first_due_request_starts_the_group():
    lines = (line("bulk", 0), line("chat", 50), line("empty"))
    patient = Dynamic(8, 100, {"chat": 5})
    assert patient.start(View(54, lines)).wake_at == 55
    assert shape(patient.start(View(55, lines))) == (2, True, [50], NEVER)
    assert line("empty").oldest == NEVER


def test_requests_whose_window_is_over_are_due():
    lines = (line("bulk", 0, 1, 2, 30), line("chat", 20, 21, 40))
    start = Dynamic(2, 25, {"chat": 3}).start(View(26, lines))
    assert shape(start) == (2, True, [0, 1, 20, 21], NEVER)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Static(0), "size must be 1 or more, not 0"),
        (lambda: Static(2, buckets=(8, 4)), "ascending"),
        (lambda: LengthClasses(2, (8, 4), 1), "ascending"),
        (lambda: LengthClasses(2, (4, 8), -1), "0 or more nanoseconds"),
        (lambda: LengthClasses(2, (), 1, pad_to_bound=True), "needs bounds to pad to"),
        (lambda: Dynamic(2, -1), "0 or more nanoseconds, not -1"),
        (lambda: Dynamic(2, 1, {"chat": -5}), "0 or more nanoseconds, not -5"),
        (lambda: Continuous(-3), "not -3"),
        (lambda: Fixed(0), "chunk"),
        (lambda: Policies(step_tokens=0), "step_tokens"),
        (lambda: Policies(Continuous(1_000)), "step_tokens 512 is less than the 1000 sequences"),
        (lambda: Policies(Static(8), step_tokens=7), "step_tokens 7 is less than the 8 sequences"),
        (lambda: Policies(Dynamic(8, 1), step_tokens=7), "step_tokens 7 is less"),
        (lambda: Settings(4, lanes=()), "at least one"),
        (lambda: Settings(4, lanes=(Lane("a"), Lane("a"))), "distinct"),
        (lambda: Settings(4, policies=Policies(Dynamic(2, 1, {"x": 1}))), "names no lane"),
        (
            lambda: Settings(4, policies=Policies(Static(2, (4, 9))), context=8),
            "a bucket of 9 tokens is wider than the 8 of the context",
        ),
        (
            lambda: Settings(
                4, policies=Policies(LengthClasses(2, (4, 9), 1, pad_to_bound=True)), context=8
            ),
            "a bucket of 9 tokens is wider than the 8 of the context",
        ),
        (lambda: BlockPool(0, 4), "a pool needs"),
    ],
)
def test_an_impossible_setting_is_refused(make, words):
    with pytest.raises(SettingError, match=words):
        make()


def test_orders_break_ties_by_arrival_number():
    lines = (line("bulk", 1, 4, priority=1), line("chat", 3), line("code", 2))

    def ranked(order):
        return [sequence.number for sequence in order.rank(View(0, lines), ())]

    assert ranked(FirstCome()) == [1, 2, 3, 4]
    assert ranked(Priority()) == [3, 2, 1, 4]


def test_prefill_first_prefers_prompts_and_alternate_takes_turns():
    prefill_first = [(kinds.prefill, kinds.decode) for kinds in PrefillFirst().choices(view())]
    assert prefill_first == [(True, False), (False, True)]
    assert Alternate().choices(view()) == PrefillFirst().choices(view())
    assert Alternate().choices(view(prefilled=True)) == PrefillFirst().choices(view())[::-1]


def test_the_youngest_is_preempted_first_and_the_last_victim_last():
    a, b, c = some(1, 2, 3)
    assert list(Youngest().victims(View(0, (), [a, c, b]))) == [c, b, a]
    assert list(Youngest().victims(View(0, (), [a, c, b], last_victim=3))) == [b, a, c]


@pytest.mark.parametrize(
    "lengths, now, closing, start",
    [
        ([3, 9, 3], 1, False, (2, [0, 2], NEVER)),  # two short ones make a group
        ([9, 3, 9, 3], 1, False, (2, [0, 2], NEVER)),  # two full classes: that of the oldest
        ([3, 9], 1, False, (0, [], 10)),  # no class is full, none is overdue
        ([9, 3], 10, False, (1, [0], NEVER)),  # overdue, alone
        ([9, 3], 1, True, (1, [0], NEVER)),
        ([], 1, True, (0, [], NEVER)),
    ],
)
def test_a_length_class_starts_when_it_is_full_or_overdue(lengths, now, closing, start):
    made = Line(Lane("chat"))
    for i, length in enumerate(lengths):
        made.insert(Sequence(i, Request(f"r{i}", (1,) * length, 1, i), [1] * length))
    found = LengthClasses(2, (4,), 10).start(View(now, (made,), closing=closing))
    assert (found.count, sorted(s.number for s in found.first), found.wake_at) == start
    assert found.only == found.exclusive == bool(found.count)
    assert LengthClasses(2, (4,), 10).start(View(now, (made,), [made])).count == 0


@pytest.mark.parametrize(
    "policies, cells",
    [
        (Policies(Continuous(8), chunk=Fixed(16), step_tokens=24), 24),
        (Policies(Continuous(8), step_tokens=24), 23 + 100),  # the last prompt overruns it
        (Policies(Continuous(1), step_tokens=24), 100),
        (Policies(Static(8)), 8 * 100),
        (Policies(LengthClasses(8, (4,), 1)), 8 * 100),
        (Policies(LengthClasses(8, (4, 64), 1, True), chunk=Fixed(16)), 8 * 64),
        (Policies(LengthClasses(8, (4, 64), 1), chunk=Fixed(16)), 8 * 16),
        (Policies(Dynamic(8, 1, buckets=(4, 64)), chunk=Fixed(16)), 8 * 64),
        (Policies(Dynamic(8, 1, buckets=(4,)), chunk=Fixed(16)), 8 * 16),
        (Policies(Static(8), chunk=Fixed(500)), 8 * 100),
    ],
)
def test_cells_are_those_of_the_largest_step(policies, cells):
    assert policies.cells(100) == cells


def test_slots_are_the_joins_size_and_the_default_fits_them_beside_a_chunk():
    made = usual(8)
    assert (made.slots, made.chunk, made.step_tokens) == (8, Fixed(CHUNK), 8 + CHUNK)
    assert Policies(Dynamic(3, 1)).slots == 3

    class Own:
        def start(self, view):
            return Start()

    assert Policies(Own(), step_tokens=1).slots == 0, "unknown"
    assert Policies(Own(), step_tokens=4).cells(100) == 3 + 100


def test_whole_prompts_are_never_split():
    policies = whole_prompts(8)
    assert (policies.slots, policies.chunk, policies.step_tokens) == (8, Whole(), 1_024)
    assert whole_prompts(2_000).step_tokens == 2_000
