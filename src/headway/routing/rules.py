"""Rules: fixed rules choose the target; the first rule that matches counts."""

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
    """A target and the conditions to ask it. All must hold; a rule without any always matches."""

    to: Target
    name: str = ""  # for rows; empty: its conditions in words
    least: int = 0  # bounds of RouteRequest.length: characters of a text, or number of token ids
    most: int = NEVER
    lanes: Collection[str] = ()  # empty: all
    tenants: Collection[str] = ()  # empty: all
    metadata: Mapping[str, str] = field(default_factory=dict)  # entries that the request must have
    when: Callable[[RouteRequest], bool] | None = None  # a predicate of your own

    def __post_init__(self) -> None:
        if isinstance(self.lanes, str) or isinstance(self.tenants, str):
            raise SettingError("a rule's lanes and tenants are lists, not one name")
        if not 0 <= self.least <= self.most:
            raise SettingError(f"a length is from {self.least} to {self.most}: none is")

    def matches(self, request: RouteRequest) -> bool:
        """Whether the request meets all conditions."""
        return (
            self.least <= request.length <= self.most
            and (not self.lanes or request.lane in self.lanes)
            and (not self.tenants or request.tenant in self.tenants)
            and all(request.metadata.get(key) == value for key, value in self.metadata.items())
            and (self.when is None or self.when(request))
        )

    @property
    def words(self) -> str:
        """The rule's name, or else its conditions."""
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
    """Asks the target of the first rule that matches. If none does, the request is refused.

    The route streams if all of its targets do.
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
