"""Rules: which target answers is written down beforehand; the first rule that matches counts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.request import NEVER
from headway.errors import RefusedError, SettingError
from headway.routing.attempts import Attempt, Attempts
from headway.routing.decision import Why
from headway.routing.request import RouteRequest
from headway.routing.route import Route, Rows, forgotten
from headway.routing.targets.target import Target


@dataclass(frozen=True, slots=True)
class Rule:
    """All of its conditions must hold. One without conditions matches every request."""

    to: Target
    name: str = ""  # for rows; empty: its conditions in words
    least: int = 0  # the request's `length`: characters of a text, token ids of ids
    most: int = NEVER
    lanes: Collection[str] = ()  # empty: all
    tenants: Collection[str] = ()  # empty: all
    metadata: Mapping[str, str] = field(default_factory=dict)  # entries that the request has
    when: Callable[[RouteRequest], bool] | None = None  # a predicate of your own

    def __post_init__(self) -> None:
        if isinstance(self.lanes, str) or isinstance(self.tenants, str):
            raise SettingError("a rule's lanes and tenants are lists, not one name")
        if not 0 <= self.least <= self.most:
            raise SettingError(f"a length is from {self.least} to {self.most}: none is")

    def matches(self, request: RouteRequest) -> bool:
        """Whether this request is one of its own."""
        return (
            self.least <= request.length <= self.most
            and (not self.lanes or request.lane in self.lanes)
            and (not self.tenants or request.tenant in self.tenants)
            and all(request.metadata.get(key) == value for key, value in self.metadata.items())
            and (self.when is None or self.when(request))
        )

    @property
    def words(self) -> str:
        """Its name, or its conditions."""
        length = f"{self.least} to {self.most}" if self.most != NEVER else f"{self.least} or more"
        named = getattr(self.when, "__name__", "its predicate")
        conditions = [
            f"length {length}" if self.least or self.most != NEVER else "",
            f"lane {' or '.join(self.lanes)}" if self.lanes else "",
            f"tenant {' or '.join(self.tenants)}" if self.tenants else "",
            *[f"{key} is {value}" for key, value in self.metadata.items()],
            named if self.when else "",
        ]
        return self.name or ", ".join([each for each in conditions if each]) or "every request"


class Rules(Route):
    """The target of the first rule that matches. If none does, the request is refused.

    It streams if all of its targets do.
    """

    can_stream = True

    def __init__(self, rules: Sequence[Rule], *, name: str = "", rows: Rows = forgotten) -> None:
        self._rules = tuple(rules)
        super().__init__([each.to for each in self._rules], name=name, rows=rows)

    async def decide(self, attempts: Attempts) -> Attempt:
        for number, rule in enumerate(self._rules, 1):
            if rule.matches(attempts.request):
                attempts.start(rule.to, Why.RULE, f"rule {number}: {rule.words}")
                return await attempts.only()
        raise RefusedError(f"{self.name}: no rule matches; add one without conditions", NEVER)
