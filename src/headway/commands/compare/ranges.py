"""Window ranges in an endpoint file, which are refused if no strategy would use them."""

from collections.abc import Iterable, Mapping

from headway.core.lane import Lane
from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.strategies.from_yaml import StrategyMaker
from headway.strategies.registry import DYNAMIC_LANES
from headway.strategies.strategy_inputs import StrategyInputs
from headway.strategies.window import Window
from headway.traffic.endpoint_traffic import EndpointTraffic


def check_ranges(services: Iterable[EndpointTraffic], makes: Mapping[str, StrategyMaker]) -> None:
    """Raise SettingError for the first load-following window that no strategy would use."""
    stated = {each.name: each.window for each in services if each.window != Window()}
    if not any(window.follows for window in stated.values()):
        return
    lanes = [Lane(name) for name in stated]
    site = StrategyInputs(lanes, TokenCost(1.0, 1.0), 2_048, stated=stated)
    joins = [make(site).policies.join for make in makes.values()]
    for name, window in stated.items():
        if window.follows and not any(window.is_in(join, name) for join in joins):
            raise SettingError(
                f"{name}: window: {window.text} follows the load, and no strategy that is "
                f"compared has such windows; add {DYNAMIC_LANES}, or state one time"
            )
