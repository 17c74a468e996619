"""The traffic of a report, for a simulation that offers the same, whatever its token price."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.costing.token_cost import TokenCost
from headway.errors import SettingError
from headway.traffic.selection import LaneSelection, Selection
from headway.yaml_values import number


@dataclass(frozen=True, slots=True)
class Like:
    """The traffic that a comparison or a simulation offered."""

    name: str  # of the file
    seed: int
    span: int  # nanoseconds, as requested
    rate: float  # as requested; 0: a load was requested
    load: float  # as requested; 0: a rate was requested
    token_scale: float  # as requested
    price: TokenCost  # the price of a token in that report
    extent: Selection  # without portions if the endpoints are the demo's
    offered: Mapping[str, int]  # requests, by endpoint

    def check_names(self, names: Collection[str]) -> None:
        """Raise SettingError if these are not the report's endpoints."""
        if set(names) != set(self.extent.portions):
            of = ", ".join(self.extent.portions) or "the demo's"
            raise SettingError(
                f"{self.name} is of the endpoints {of}, not of {', '.join(names) or 'the demo'}: "
                "name the --lanes or --trace that it was made with"
            )

    def check(self, offered: Mapping[str, int]) -> None:
        """Raise SettingError if these numbers of requests are not the report's."""
        if dict(offered) != dict(self.offered):
            raise SettingError(
                f"{self.name} offered {_said(self.offered)}, and these endpoints make "
                f"{_said(offered)}: name the --lanes or --trace that it was made with"
            )


def like(path: Path) -> Like:
    """Read a report's traffic. Raise SettingError if the report does not say how it was made."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        work = plain["workload"]
        options, lanes = work["asked"], work.get("lanes", {})
        portions = {name: _portion(each["portion"], name) for name, each in lanes.items()}
        price = {name: number(each, f"price_ns: {name}") for name, each in work["price_ns"].items()}
        return Like(
            name=path.name,
            seed=_whole(plain["seed"], "seed", 0),
            span=_whole(options["span_ns"], "span_ns", 1),
            rate=number(options["rate"], "rate"),
            load=number(options["load"], "load"),
            token_scale=number(options["token_scale"], "token_scale"),
            price=TokenCost(**price),
            extent=Selection(portions, _whole(work["window_ns"], "window_ns", 1)),
            offered={each["name"]: each["offered"] for each in plain["endpoints"]},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = str(error) if isinstance(error, SettingError) else repr(error)
        raise SettingError(
            f"{path.name} is no report of headway compare or simulate whose traffic can be had "
            f"again: {said}"
        ) from error


def _portion(plain: Mapping[str, Any], lane: str) -> LaneSelection:
    taken = LaneSelection(**plain)
    number(taken.count, f"{lane}: count")
    _whole(taken.within, f"{lane}: within", 1)
    _whole(taken.span, f"{lane}: span", 0)
    return taken


def _whole(value: Any, name: str, least: int) -> int:
    """The value, if it is a whole number of at least `least`, of any size; else SettingError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SettingError(f"{name} is {value!r}; a whole number from {least} on is wanted")
    return value


def _said(offered: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} of {name}" for name, count in offered.items()) or "nothing"
