"""Every strategy by name, made for the endpoints at hand.

All have the same order, first come, first served, but for the two that are about nothing else;
and on a machine of 16 slots, the same slots. With more of them continuous batching has all, and a
group has 16 members still: its prompts run in one step, padded to the longest of them or to a
bucket, and 256 long ones would take a minute.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.lane import Lane
from headway.core.policies.chunk import Chunk, Fixed, Whole
from headway.core.policies.join import Continuous, Dynamic, Join, LengthClasses, Static
from headway.core.policies.mix import Alternate, Mix, Mixed, PrefillFirst
from headway.core.policies.order import FirstCome, Order, Priority, ShortestFirst
from headway.core.policies.policies import Policies
from headway.core.request import NEVER
from headway.costing.token_cost import Price
from headway.errors import SettingError, did_you_mean
from headway.strategies.strategy import SLOTS, Strategy, chunk_of, windows_of

FIRST_COME = FirstCome()
CHUNKED = "continuous-chunk-"  # and a number of tokens
GLOBAL, PER_LANE = "dynamic-global", "dynamic-lanes"  # the pair that is always compared
STEP = 512  # tokens of a step of whole prompts; the last prompt may overrun it
BUCKETS = (32, 64, 128, 256, 512, 1_024, 2_048)  # tokens


@dataclass(frozen=True, slots=True)
class Site:
    """What a strategy is fitted to."""

    lanes: Collection[Lane]
    price: Price
    context: int
    prompts: Sequence[int] = ()  # tokens, ascending: how long they are
    stated: Mapping[str, int] = field(default_factory=dict)  # windows that the user has set, ns
    slots: int = SLOTS  # of the running batch
    full: int = 0  # rows of a full batch, where the memory holds fewer; 0: slots

    @property
    def windows(self) -> dict[str, int]:
        """Nanoseconds, by lane."""
        return windows_of(self.lanes) | dict(self.stated)

    @property
    def window(self) -> int:
        """One for all, fitted to the endpoint that can wait the longest, as teams do who want
        full batches."""
        timed = [self.windows[each.name] for each in self.lanes if each.budget.ttft != NEVER]
        return max(timed or self.windows.values())

    @property
    def bounds(self) -> tuple[int, ...]:
        """Of three length classes of as many prompts each."""
        count = len(self.prompts)
        return tuple(sorted({self.prompts[count * k // 3] for k in (1, 2)} if count else ()))

    @property
    def together(self) -> int:
        """Members of a group."""
        return min(SLOTS, self.slots)

    @property
    def chunk(self) -> int:
        """Prompt tokens that fit beside a full batch into the tightest budget."""
        return chunk_of(self.lanes, self.price, self.full or self.slots)

    def group(self, name: str, rule: str, join: Join) -> Strategy:
        policies = Policies(
            join=join, mix=PrefillFirst(), chunk=Whole(), step_tokens=self.together * self.context
        )
        return Strategy(name, rule, policies)


def _continuous(
    name: str, rule: str, mix: Mix, chunk: Chunk, slots: int, order: Order = FIRST_COME
) -> Strategy:
    tokens = slots + chunk.size if isinstance(chunk, Fixed) else max(STEP, 2 * slots)
    return Strategy(
        name,
        rule,
        Policies(join=Continuous(slots), order=order, mix=mix, chunk=chunk, step_tokens=tokens),
    )


def _one_by_one(site: Site) -> Strategy:
    policies = Policies(join=Continuous(1), chunk=Whole(), step_tokens=site.context)
    return Strategy("one-by-one", "one request at a time, to its end", policies)


def _static(site: Site) -> Strategy:
    rule = (
        f"groups of exactly {site.together}, padded to the longest prompt, run to the last answer"
    )
    return site.group("static", rule, Static(site.together))


def _static_together(site: Site) -> Strategy:
    rule = "as static, and nobody hears anything before the group ends, as plain generate does"
    return site.group("static-together", rule, Static(site.together, together=True))


def _static_buckets(site: Site) -> Strategy:
    buckets = tuple(each for each in BUCKETS if each <= site.context)
    rule = f"as static, padded up to the next of {', '.join(map(str, buckets))} tokens"
    return site.group("static-buckets", rule, Static(site.together, buckets))


def _dynamic_global(site: Site) -> Strategy:
    rule = (
        f"groups of up to {site.together}, begun once anyone has waited "
        f"{site.window / 1e6:.0f} ms: one window for all, that of the endpoint that can wait the "
        "longest"
    )
    return site.group(GLOBAL, rule, Dynamic(site.together, site.window))


def _dynamic_lanes(site: Site) -> Strategy:
    timed = {lane.name for lane in site.lanes if lane.budget.ttft != NEVER} | set(site.stated)
    said = ", ".join(
        f"{name} {window / 1e6:.0f} ms" for name, window in site.windows.items() if name in timed
    )
    rule = (
        f"groups of up to {site.together}, begun once someone has waited the window of its "
        f"endpoint: {said}"
    )
    most = max(site.windows.values())
    return site.group(PER_LANE, rule, Dynamic(site.together, most, site.windows))


def _length_classes(site: Site) -> Strategy:
    bounds = site.bounds
    rule = (
        f"groups of up to {site.together} of one class of prompt length (up to "
        f"{', '.join(map(str, bounds))} tokens and longer), begun after {site.window / 1e6:.0f} ms"
    )
    return site.group("length-classes", rule, LengthClasses(site.together, bounds, site.window))


def _prefill_first(site: Site) -> Strategy:
    rule = f"{site.slots} slots; waiting prompts run whole before anybody's next token"
    return _continuous("continuous-prefill-first", rule, PrefillFirst(), Whole(), site.slots)


def _alternate(site: Site) -> Strategy:
    rule = f"{site.slots} slots; a step of whole prompts, a step of next tokens, in turn"
    return _continuous("continuous-alternate", rule, Alternate(), Whole(), site.slots)


def _mixed(site: Site) -> Strategy:
    rule = f"{site.slots} slots; whole prompts share steps with next tokens"
    return _continuous("continuous-mixed", rule, Mixed(), Whole(), site.slots)


def chunked(size: int, slots: int = SLOTS) -> Strategy:
    rule = f"{slots} slots; prompts in chunks of {size} tokens share steps with next tokens"
    return _continuous(f"{CHUNKED}{size}", rule, Mixed(), Fixed(size), slots)


def _shortest_first(site: Site) -> Strategy:
    rule = f"as {CHUNKED}{site.chunk}, the shortest request first"
    return _continuous(
        "shortest-first", rule, Mixed(), Fixed(site.chunk), site.slots, ShortestFirst()
    )


def _priority(site: Site) -> Strategy:
    rule = f"as {CHUNKED}{site.chunk}, endpoints by their priority"
    return _continuous("priority", rule, Mixed(), Fixed(site.chunk), site.slots, Priority())


def _first_come(site: Site) -> Strategy:
    rule = f"as {CHUNKED}{site.chunk}, the chunk that the tightest budget allows; first come"
    return _continuous("first-come", rule, Mixed(), Fixed(site.chunk), site.slots)


REGISTRY: dict[str, Callable[[Site], Strategy]] = {
    "one-by-one": _one_by_one,
    "static": _static,
    "static-together": _static_together,
    "static-buckets": _static_buckets,
    GLOBAL: _dynamic_global,
    PER_LANE: _dynamic_lanes,
    "length-classes": _length_classes,
    "continuous-prefill-first": _prefill_first,
    "continuous-alternate": _alternate,
    "continuous-mixed": _mixed,
    f"{CHUNKED}64": lambda site: chunked(64, site.slots),
    f"{CHUNKED}256": lambda site: chunked(256, site.slots),
    "first-come": _first_come,
    "shortest-first": _shortest_first,
    "priority": _priority,
}
DEFAULT = tuple(name for name in REGISTRY if name != "first-come")  # it is one of the chunks


def named(name: str) -> Callable[[Site], Strategy]:
    """SettingError, with the nearest name, if there is none of that name."""
    if name in REGISTRY:
        return REGISTRY[name]
    size = name.removeprefix(CHUNKED)
    if size != name and size.isdecimal() and int(size):
        return lambda site: chunked(int(size), site.slots)
    raise SettingError(f"there is no strategy {name!r}{did_you_mean(name, REGISTRY)}")
