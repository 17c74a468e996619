"""Every strategy by name, fitted to the endpoints of a comparison.

Requests are served first come, first served, except by shortest-first, priority, deadline-order,
filler, fair and budgets. With 16 slots, all strategies but one-by-one use 16. With more,
continuous batching uses all slots, but a group keeps 16 members: its prompts run in one padded
step, and 256 long prompts would take a minute.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headway.core.policies.by_deadline import ByDeadline
from headway.core.policies.by_slack import BySlack
from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.defer import WithoutDeadline, WithTimeToSpare
from headway.core.policies.fairly import Fairly
from headway.core.policies.join import Continuous, Dynamic, LengthClasses, Static
from headway.core.policies.memory import FILLER_AHEAD, Ahead
from headway.core.policies.mix import Alternate, Mix, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Order, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.policies.preempt import ByLane
from headway.core.policies.relegate import Hopeless
from headway.errors import SettingError, did_you_mean
from headway.strategies.strategy import SLOTS, Strategy
from headway.strategies.strategy_inputs import StrategyInputs

FIRST_COME = FirstCome()
CHUNKED_PREFIX = "continuous-chunk-"  # and a number of tokens
DYNAMIC_GLOBAL, DYNAMIC_LANES = "dynamic-global", "dynamic-lanes"  # always compared
STEP_TOKENS = 512  # of a step of whole prompts; the last prompt may exceed it
LONG_STEP = 2_048  # most prompt tokens of a step whose time is bounded
BUCKETS = (32, 64, 128, 256, 512, 1_024, 2_048)  # tokens


def _continuous(
    name: str, rule: str, mix: Mix, chunk: Chunk, slots: int, order: Order = FIRST_COME
) -> Strategy:
    tokens = slots + chunk.size if isinstance(chunk, Fixed) else max(STEP_TOKENS, 2 * slots)
    return Strategy(
        name,
        rule,
        Policies(join=Continuous(slots), order=order, mix=mix, chunk=chunk, step_tokens=tokens),
    )


def _one_by_one(inputs: StrategyInputs) -> Strategy:
    policies = Policies(join=Continuous(1), chunk=Whole(), step_tokens=inputs.context)
    return Strategy("one-by-one", "one request at a time, to its end", policies)


def _static(inputs: StrategyInputs) -> Strategy:
    rule = (
        f"groups of exactly {inputs.together}, padded to the longest prompt, run to the last answer"
    )
    return inputs.group("static", rule, Static(inputs.together))


def _static_together(inputs: StrategyInputs) -> Strategy:
    rule = "as static, but every answer is held until the whole group ends, as plain generate does"
    return inputs.group("static-together", rule, Static(inputs.together, together=True))


def _static_buckets(inputs: StrategyInputs) -> Strategy:
    buckets = tuple(each for each in BUCKETS if each <= inputs.context)
    rule = f"as static, padded up to the next of {', '.join(map(str, buckets))} tokens"
    return inputs.group("static-buckets", rule, Static(inputs.together, buckets))


def _dynamic_global(inputs: StrategyInputs) -> Strategy:
    rule = (
        f"groups of up to {inputs.together}, begun once anyone has waited {inputs.window.text}: "
        "one window for all, that of the endpoint that can wait the longest"
    )
    window = inputs.window
    lows = {"": window.low} if window.follows else {}
    return inputs.group(DYNAMIC_GLOBAL, rule, Dynamic(inputs.together, window.high, lows=lows))


def _dynamic_lanes(inputs: StrategyInputs) -> Strategy:
    windows = ", ".join(f"{name} {each.text}" for name, each in inputs.timed_windows.items())
    rule = (
        f"groups of up to {inputs.together}, begun once someone has waited the window of its "
        f"endpoint: {windows}"
    )
    highs = {name: window.high for name, window in inputs.windows.items()}
    lows = {name: window.low for name, window in inputs.windows.items() if window.follows}
    join = Dynamic(inputs.together, max(highs.values()), highs, lows=lows)
    return inputs.group(DYNAMIC_LANES, rule, join)


def _length_classes(inputs: StrategyInputs) -> Strategy:
    bounds = inputs.bounds
    rule = (
        f"groups of up to {inputs.together} of one class of prompt length (up to "
        f"{', '.join(map(str, bounds))} tokens and longer), begun after "
        f"{inputs.window.high / 1e6:.0f} ms"
    )
    return inputs.group(
        "length-classes", rule, LengthClasses(inputs.together, bounds, inputs.window.high)
    )


def _prefill_first(inputs: StrategyInputs) -> Strategy:
    rule = f"{inputs.slots} slots; waiting prompts run whole before any running answer's next token"
    return _continuous("continuous-prefill-first", rule, PrefillFirst(), Whole(), inputs.slots)


def _alternate(inputs: StrategyInputs) -> Strategy:
    rule = f"{inputs.slots} slots; a step of whole prompts, a step of next tokens, in turn"
    return _continuous("continuous-alternate", rule, Alternate(), Whole(), inputs.slots)


def _mixed(inputs: StrategyInputs) -> Strategy:
    rule = f"{inputs.slots} slots; whole prompts share steps with next tokens"
    return _continuous("continuous-mixed", rule, Mixed(), Whole(), inputs.slots)


def chunked_strategy(size: int, slots: int = SLOTS) -> Strategy:
    """Continuous batching with prompts in chunks of `size` tokens, mixed with decodes."""
    rule = f"{slots} slots; prompts in chunks of {size} tokens share steps with next tokens"
    return _continuous(f"{CHUNKED_PREFIX}{size}", rule, Mixed(), Fixed(size), slots)


def _shortest_first(inputs: StrategyInputs) -> Strategy:
    rule = f"as {CHUNKED_PREFIX}{inputs.chunk}, the shortest request first"
    return _continuous(
        "shortest-first", rule, Mixed(), Fixed(inputs.chunk), inputs.slots, ShortestFirst()
    )


def _priority(inputs: StrategyInputs) -> Strategy:
    rule = f"as {CHUNKED_PREFIX}{inputs.chunk}, endpoints by their priority"
    return _continuous("priority", rule, Mixed(), Fixed(inputs.chunk), inputs.slots, Priority())


def _first_come(inputs: StrategyInputs) -> Strategy:
    rule = (
        f"as {CHUNKED_PREFIX}{inputs.chunk}, the chunk that the tightest budget allows; first come"
    )
    return _continuous("first-come", rule, Mixed(), Fixed(inputs.chunk), inputs.slots)


def by_budgets(slots: int) -> Policies:
    """All policies that follow the budgets, together."""
    return replace(
        _by_slack(slots),
        order=ByDeadline(),
        preempt=ByLane(),
        defer=WithTimeToSpare(),
        relegate=Hopeless(),
        memory=FILLER_AHEAD,
    )


def _by_slack(slots: int) -> Policies:
    return Policies(Continuous(slots), chunk=BySlack(), step_tokens=slots + LONG_STEP)


def _first_come_but(name: str, rule: str, inputs: StrategyInputs, **parts: Any) -> Strategy:
    """First-come, with the chunk that the tightest budget allows, except for these parts."""
    plain = _first_come(inputs)
    rule = f"as first-come with chunks of {inputs.chunk}, but {rule}"
    return Strategy(name, rule, replace(plain.policies, **parts))


def _deadline_order(inputs: StrategyInputs) -> Strategy:
    rule = "the earliest deadline goes first; where not all can be in time, as many as possible"
    return _first_come_but("deadline-order", rule, inputs, order=ByDeadline())


def _relegation(inputs: StrategyInputs) -> Strategy:
    rule = "requests that can no longer be in time go behind the others"
    return _first_come_but("relegation", rule, inputs, relegate=Hopeless())


def _filler(inputs: StrategyInputs) -> Strategy:
    rule = "endpoints without a budget fill what the others leave, and give slots and blocks back"
    parts = {"order": Priority(), "preempt": ByLane(), "defer": WithoutDeadline()}
    return _first_come_but("filler", rule, inputs, **parts)


def _memory_ahead(inputs: StrategyInputs) -> Strategy:
    rule = "a request starts if memory will suffice later on too, by the lengths seen so far"
    return _first_come_but("memory-ahead", rule, inputs, memory=Ahead())


def _fair(inputs: StrategyInputs) -> Strategy:
    rule = "the tenants of an endpoint share its places: who has had the least service goes next"
    return _first_come_but("fair", rule, inputs, order=Fairly(FIRST_COME))


def _slack_steps(inputs: StrategyInputs) -> Strategy:
    rule = (
        f"{inputs.slots} slots; a step has the prompts, first come, that fit into the time which "
        "the running answers can spare"
    )
    return Strategy("slack-steps", rule, _by_slack(inputs.slots))


def _budgets(inputs: StrategyInputs) -> Strategy:
    rule = (
        f"{inputs.slots} slots; deadline-order, slack-steps, relegation and filler together; "
        "answers with time to spare may miss steps, and the filler leaves memory for others: as "
        "many requests as possible inside their budgets"
    )
    return Strategy("budgets", rule, by_budgets(inputs.slots))


REGISTRY: dict[str, Callable[[StrategyInputs], Strategy]] = {
    "one-by-one": _one_by_one,
    "static": _static,
    "static-together": _static_together,
    "static-buckets": _static_buckets,
    DYNAMIC_GLOBAL: _dynamic_global,
    DYNAMIC_LANES: _dynamic_lanes,
    "length-classes": _length_classes,
    "continuous-prefill-first": _prefill_first,
    "continuous-alternate": _alternate,
    "continuous-mixed": _mixed,
    f"{CHUNKED_PREFIX}64": lambda inputs: chunked_strategy(64, inputs.slots),
    f"{CHUNKED_PREFIX}256": lambda inputs: chunked_strategy(256, inputs.slots),
    "first-come": _first_come,
    "shortest-first": _shortest_first,
    "priority": _priority,
    "deadline-order": _deadline_order,
    "slack-steps": _slack_steps,
    "relegation": _relegation,
    "filler": _filler,
    "memory-ahead": _memory_ahead,
    "fair": _fair,
    "budgets": _budgets,
}
PARTS_OF_BUDGETS = ("deadline-order", "slack-steps", "relegation", "filler")
# first-come is one of the chunked strategies. memory-ahead differs from it only when memory is
# short, and fair only when an endpoint has several tenants.
LEFT_OUT = ("first-come", "memory-ahead", "fair", *PARTS_OF_BUDGETS)
DEFAULT_STRATEGIES = tuple(name for name in REGISTRY if name not in LEFT_OUT)


def find_strategy(name: str) -> Callable[[StrategyInputs], Strategy]:
    """The maker of the strategy with this name. SettingError suggests the nearest name."""
    if name in REGISTRY:
        return REGISTRY[name]
    size = name.removeprefix(CHUNKED_PREFIX)
    if size != name and size.isascii() and size.isdecimal() and size.strip("0"):
        if size.startswith("0"):
            raise SettingError(f"{name!r}: write {CHUNKED_PREFIX}{size.lstrip('0')}")
        return lambda inputs: chunked_strategy(int(size), inputs.slots)
    raise SettingError(f"there is no strategy {name!r}{did_you_mean(name, REGISTRY)}")
