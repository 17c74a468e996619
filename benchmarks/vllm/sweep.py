"""Which setting of vLLM's server keeps most requests inside their budgets? (sweep)"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.vllm.traffic import LANES, Budgets

STEPS = (256, 512, 2_048)  # max-num-batched-tokens; the last is vLLM's default
SHARES = (0.5, 0.7, 0.9)  # of a lane's TTFT


class Setting(NamedTuple):
    """Of vLLM's server and its callers."""

    step: int  # max-num-batched-tokens
    first: str = ""  # the lane that goes first; empty: first come
    share: float = 0.0  # of the TTFT, after which callers without a token hang up; 0: they stay

    def __str__(self) -> str:
        order = f"{self.first}-first" if self.first else "first-come"
        leaving = f"-hang-up-{self.share:g}" if self.share else ""
        return f"{order}-{self.step}{leaving}"

    def limits(self, budgets: Budgets) -> dict[str, float]:
        """Seconds by lane, after which callers hang up."""
        if not self.share:
            return {}
        given = {lane: limits["ttft"] for lane, limits in budgets.items() if "ttft" in limits}
        return {lane: self.share * ms / 1e3 for lane, ms in given.items()}


def sweep(steps: Sequence[int], inside: Callable[[Setting], int]) -> Setting:
    """The best setting. inside: requests inside budget, with a setting.

    First come and the first lane first are tried with each step, the other lane first with the
    better step. Callers that hang up are tried with the best of either order, so that a sweep of
    three steps has 13 runs, not 36.
    """
    one, other = LANES
    found = {each: inside(each) for each in map(Setting, steps)}
    plain = best(found, found)
    by_lane = {each: inside(each) for each in [Setting(step, one) for step in steps]}
    swapped = best(by_lane, by_lane)._replace(first=other)
    by_lane[swapped] = inside(swapped)
    found |= by_lane
    for order in (plain, best(by_lane, by_lane)):
        for share in SHARES:
            found[order._replace(share=share)] = inside(order._replace(share=share))
    return best(found, found)


def best(found: Mapping[Setting, int], settings: Iterable[Setting]) -> Setting:
    """The best of these settings; of equal ones, the first in the order of a Setting's fields."""
    return min(settings, key=lambda each: (-found[each], each))
