"""An executor's traits: a setting or request that it cannot serve is refused with the reason."""

from dataclasses import replace

import pytest

from headway.core.commands import Add
from headway.core.grammar import Grammar
from headway.core.policies.chunk import Fixed
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.core.scheduler import Scheduler
from headway.core.settings import Settings
from headway.engine import Engine, Executor
from headway.errors import SettingError
from headway.executor.fake import FakeExecutor
from headway.executor.forwarding import Forwarding
from headway.executor.guarded import PROBE, GuardedExecutor
from headway.executor.traits import EVERYTHING, Traits
from headway.journal.record import digest
from headway.runs.shared_executor import SharedExecutor
from headway.sim.clock import VirtualClock
from headway.sim.executor import PricedExecutor
from headway.sim.inbox import TraceInbox
from tests.traces import BLOCK, COST, Spy, ask

NARROW = Traits("a narrow executor", block_multiple=32, exclusive_groups=False)
GRAMMAR = Grammar("regex", "[0-9]+")


class Narrow(Executor):
    traits = NARROW


@pytest.mark.parametrize("join", [Static(2), Dynamic(2, 5), LengthClasses(2, (8,), 5)])
def test_group_policies_are_refused_by_an_executor_without_padding(join):
    settings = Settings(9, 32, policies=Policies(join))
    cause = f"a narrow executor computes no padding.* groups of {type(join).__name__}: use Cont"
    with pytest.raises(SettingError, match=cause):
        Engine(Scheduler(settings), Narrow(), None, VirtualClock())
    EVERYTHING.check(settings)


def test_two_steps_in_flight_are_refused_where_tokens_are_drafted():
    settings = Settings(9, 32, policies=Policies(Continuous(2)), depth=2)
    FakeExecutor(9, 32, steps_in_flight=2).traits.check(settings)
    drafting = FakeExecutor(9, 32, burst=3, steps_in_flight=2).traits
    with pytest.raises(SettingError, match=r"the fake executor drafts up to 2 tokens.* not 2"):
        drafting.check(settings)
    drafting.check(replace(settings, depth=1))


def test_a_block_size_that_the_executor_does_not_support_is_refused():
    NARROW.check(Settings(9, 64, policies=Policies(Continuous(2))))
    with pytest.raises(SettingError, match="blocks of a multiple of 32 tokens, not of 48"):
        NARROW.check(Settings(9, 48, policies=Policies(Continuous(2))))


@pytest.mark.parametrize(
    "lacking, wanted, cause",
    [
        ({"logprobs": False}, (0, -1, Grammar(), 1.0), "gives no log-probabilities"),
        (
            {"prompt_logprobs": False},
            (-1, 3, Grammar(), 1.0),
            "gives no log-probabilities of a prompt",
        ),
        ({"grammars": False}, (-1, -1, GRAMMAR, 1.0), "obeys no grammars"),
        (
            {"least_temperature": 0.01},
            (-1, -1, Grammar(), 0.005),
            "samples at a temperature of 0 or from 0.01 on, not at 0.005",
        ),
        (
            {"most_temperature": 2.0},
            (-1, -1, Grammar(), 2.1),
            "samples at a temperature of 2.0 at most, not at 2.1",
        ),
    ],
)
def test_a_request_beyond_the_executors_traits_is_refused(lacking, wanted, cause):
    assert EVERYTHING.refusal(*wanted) == ""
    assert Traits("it", **lacking).refusal(*wanted) == f"it {cause}"
    assert Traits("it", **lacking).refusal(-1, -1, Grammar(), 0.0) == ""


def test_wrappers_have_the_inner_executors_traits_and_forward_compile_and_prepare():
    told = []

    class Telling(Narrow):
        def compile(self, grammar):
            told.append(grammar)

        def prepare(self, tokens, sampled, seconds):
            told.append((tokens, sampled, seconds))

    clock, inner = VirtualClock(), Telling()
    wrapped = GuardedExecutor(SharedExecutor(PricedExecutor(COST, clock, Forwarding(inner))))
    wrapped.compile(GRAMMAR)
    wrapped.prepare(5, 3, 1.0)
    assert wrapped.traits is NARROW and told == [GRAMMAR, (5, 3, 1.0)]


def test_a_simulated_executor_supports_everything_and_prepares_nothing():
    plain = PricedExecutor(COST, VirtualClock())
    assert plain.traits == replace(EVERYTHING, steps_in_flight=NEVER)
    assert plain.compile(GRAMMAR) is None and plain.prepare(1, 1, 1.0) is None


class Wanting(Spy):
    """An executor that wants the known tokens of each sequence that begins."""

    traits = Traits(wants_tokens=True)


def batches(kind):
    """The batches of a run with so few KV blocks that a sequence is preempted."""
    clock, spy = VirtualClock(), kind(FakeExecutor(5, BLOCK), [])
    policies = Policies(Continuous(2), chunk=Fixed(6), step_tokens=8)
    scheduler = Scheduler(Settings(5, BLOCK, policies=policies))
    asked = [ask(name, tuple(range(at, at + 6)), 8) for name, at in (("a", 1), ("b", 20))]
    inbox = TraceInbox([(0, Add(each)) for each in asked], clock)
    engine = Engine(scheduler, PricedExecutor(COST, clock, spy), inbox, clock)
    while len(scheduler.ledger.requests) < 2:
        engine.step()
    assert scheduler.roster.preemptions
    return spy.batches


def test_a_sequence_begins_with_its_known_tokens_only_if_the_executor_wants_them():
    plain, wanting = batches(Spy), batches(Wanting)
    assert [digest(batch.rows) for batch in plain] == [digest(batch.rows) for batch in wanting]
    assert all(each.tokens == () for batch in plain for each in batch.begun)
    begun = [each for batch in wanting for each in batch.begun]
    assert begun[0].tokens == tuple(range(1, 7))
    again = [each for each in begun if len(each.tokens) > each.prompt]
    assert again, "one that was preempted begins with what it had generated"
    assert PROBE.begun[0].tokens == PROBE.rows[0].tokens
