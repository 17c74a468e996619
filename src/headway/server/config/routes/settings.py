"""`routes`: names that several models answer together."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_serializer

from headway.core.request import NEVER
from headway.errors import SettingError
from headway.server.config.durations import Duration, Limit
from headway.server.config.routes.accept import AcceptSettings, check_function
from headway.server.config.sections.models import AT
from headway.server.config.sections.section import Count, Number, Section, SettingAtError, Some

KINDS = ("rules", "least_loaded", "cheapest", "cascade", "ensemble", "fallback")
OPTIONS = {  # the kind of route that each option belongs to
    "accept": "cascade",
    "speculate": "cascade",
    "best_effort": "cascade",
    "budget": "cheapest",
    "choose": "ensemble",
    "score": "ensemble",
    "quorum": "ensemble",
    "least": "ensemble",
    "timeout": "fallback",
    "hedge": "fallback",
    "circuit": "fallback",
}
REPEATS = ("ensemble", "rules")  # kinds that may name a target several times
# A discriminator picks the form of a value, so that errors are about that form only.
ONE, EACH, SET, NOT = Tag("[one]"), Tag("[each]"), Tag("[set]"), Tag("[not]")
FORM = Discriminator(lambda given: "[each]" if isinstance(given, list | tuple) else "[one]")
Tokens = Annotated[int, Field(ge=0), Number]
Targets = tuple[str, ...]


class RuleSettings(Section):
    """One rule. All of its conditions must hold; without any it matches every request."""

    to: Annotated[str, Field(description="The model or route that answers.")]
    name: Annotated[
        str, Field(description="For headers and rows. Default: its conditions in words.")
    ] = ""
    least_tokens: Annotated[
        Tokens,
        Field(description="Least tokens of the prompt, as the route's first model counts them."),
    ] = 0
    most_tokens: Annotated[
        Tokens | None, Field(description="Most tokens of the prompt. Default: no limit.")
    ] = None
    lanes: Annotated[
        tuple[str, ...],
        Some,
        Field(description="The request's lane is one of these. Default: any."),
    ] = ()
    tenants: Annotated[
        tuple[str, ...],
        Some,
        Field(description="The request's tenant is one of these. Default: any."),
    ] = ()
    metadata: Annotated[
        dict[str, str], Field(description="Entries that the body's `metadata` must have.")
    ] = {}

    def check(self) -> None:
        if self.most_tokens is not None and self.most_tokens < self.least_tokens:
            raise SettingError(
                f"no prompt has at least {self.least_tokens} and at most {self.most_tokens} tokens"
            )

    @model_serializer(mode="wrap")
    def _given(self, serialize: Any) -> dict[str, Any]:
        """Leave out empty lanes and tenants, so that the output can be read again."""
        found = serialize(self)
        return {
            name: value
            for name, value in found.items()
            if value or name not in ("lanes", "tenants")
        }

    @property
    def counts(self) -> bool:
        """Whether the rule depends on the prompt's number of tokens."""
        return self.least_tokens > 0 or self.most_tokens is not None


class CircuitSettings(Section):
    """When a target that fails is not asked for a while."""

    failures: Annotated[
        Count, Field(description="Failures in a row after which the target is not asked.")
    ] = 5
    pause: Annotated[Limit, Field(description="Time until one request tries the target again.")] = (
        10_000_000_000
    )

    def check(self) -> None:
        if self.pause == NEVER:
            raise SettingAtError(("pause",), "must end")


class RouteSettings(Section):
    """One route: its kind names its targets, models or other routes, the cheapest first."""

    rules: Annotated[
        tuple[RuleSettings, ...],
        Field(description="The target of the first rule that matches answers."),
    ] = ()
    least_loaded: Annotated[
        Targets | None, Field(description="The target with the shortest wait answers.")
    ] = None
    cheapest: Annotated[
        Targets | None,
        Field(description="The cheapest target answers that is predicted to be in time."),
    ] = None
    cascade: Annotated[
        Targets | None,
        Field(description="Asked in order, until `accept` takes an answer; the last one's stands."),
    ] = None
    ensemble: Annotated[
        Targets | None, Field(description="All are asked, and `choose` takes one of the answers.")
    ] = None
    fallback: Annotated[
        Targets | None, Field(description="Asked in order, until one neither refuses nor fails.")
    ] = None
    accept: Annotated[
        Annotated[AcceptSettings, ONE] | Annotated[tuple[AcceptSettings, ...], EACH],
        FORM,
        Field(description="When a cascade's answer is good enough: one for all, or one for each."),
    ] = ()
    speculate: Annotated[
        bool, Field(description="Ask the next target early where the deadline is near.")
    ] = False
    best_effort: Annotated[
        bool, Field(description="Give an answer that was not accepted where no better one comes.")
    ] = True
    budget: Annotated[
        Duration,
        Field(
            description="Time in which a target must be predicted to answer. Default: the "
            "request's deadline alone."
        ),
    ] = NEVER
    choose: Annotated[
        Literal["majority", "best"],
        Field(description="The text that most gave, or the answer with the highest score."),
    ] = "majority"
    score: Annotated[
        str,
        Field(
            description="With `best`: module:name of a function of the text. Default: the mean "
            "log-probability."
        ),
    ] = ""
    quorum: Annotated[
        int, Number, Field(ge=0, description="How many answers are waited for; 0: all of them.")
    ] = 0
    least: Annotated[Count, Field(description="With fewer answers the request fails.")] = 1
    timeout: Annotated[
        Annotated[Limit, ONE] | Annotated[tuple[Limit, ...], EACH],
        FORM,
        Field(
            description="Time for a target's answer; in a stream, for its first token. One for "
            "all, or a list of one for each. Default: none."
        ),
    ] = NEVER
    hedge: Annotated[
        bool, Field(description="A target that is late may go on while the next one is asked.")
    ] = False
    circuit: Annotated[
        Annotated[CircuitSettings, SET] | Annotated[Literal["none"], NOT],
        Discriminator(lambda given: "[not]" if given == "none" else "[set]"),
        Field(description="When a target that fails is not asked for a while."),
    ] = CircuitSettings()

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return next(kind for kind in KINDS if kind in self.model_fields_set)

    def shown_to(self, tenant: str) -> dict[str, Any]:
        """The route as JSON for a caller, without other tenants' rules and without module names."""
        found = self.model_dump(mode="json")
        accept = found.get("accept", [])
        for each in [found, *(accept if isinstance(accept, list) else [accept])]:
            for name in ("score", "function"):
                if each.get(name):
                    each[name] = "set"
        if rules := found.get("rules"):
            mine = [rule for rule in rules if tenant in rule.get("tenants", [tenant])]
            for rule in mine:
                if "tenants" in rule:
                    rule["tenants"] = [tenant]
            found["rules"] = mine
        return found

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets' names, in order. Each rule adds its target, even a repeated one."""
        if self.kind == "rules":
            return tuple([rule.to for rule in self.rules])
        found: tuple[str, ...] = getattr(self, self.kind) or ()
        return found

    @property
    def counts(self) -> bool:
        """Whether a rule depends on the prompt's number of tokens."""
        return any(rule.counts for rule in self.rules)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that the route calls, as module:name."""
        each = self.accept if isinstance(self.accept, tuple) else (self.accept,)
        named = [one.function for one in each if one.function]
        return (*named, self.score) if self.score else tuple(named)

    def check(self) -> None:
        given = [kind for kind in KINDS if kind in self.model_fields_set]
        if len(given) != 1:
            said = f"not {' and '.join(given)}" if given else "and none is given"
            raise SettingError(f"a route is one of {', '.join(KINDS)}, {said}")
        kind = given[0]
        for option, owner in OPTIONS.items():
            if option in self.model_fields_set and owner != kind:
                raise SettingAtError((option,), f"is for {owner}, not for {kind}")
        targets = self.targets
        if not targets:
            raise SettingAtError((kind,), "names no target")
        if kind not in REPEATS and len(set(targets)) < len(targets):
            raise SettingAtError((kind,), "names a target twice")
        if kind == "cascade":
            self._check_cascade(len(targets))
        if kind == "ensemble":
            self._check_ensemble(len(targets))
        if kind == "fallback":
            self._check_fallback(len(targets))

    def _check_cascade(self, count: int) -> None:
        if count < 2:
            raise SettingAtError(("cascade",), "needs two targets or more")
        if self.accept == ():
            raise SettingError("a cascade needs `accept`: when is the small answer good enough?")
        if isinstance(self.accept, tuple) and len(self.accept) != count - 1:
            raise SettingAtError(
                ("accept",),
                f"{len(self.accept)} for {count - 1} targets: the last one's answer stands",
            )

    def _check_ensemble(self, count: int) -> None:
        if not self.least <= (self.quorum or count) <= count:
            raise SettingAtError(
                ("quorum",), f"{self.quorum} of {count} targets, where least is {self.least}"
            )
        if self.score:
            if self.choose != "best":
                raise SettingAtError(("score",), "is for choose: best")
            check_function("score", self.score)

    def _check_fallback(self, count: int) -> None:
        if isinstance(self.timeout, tuple) and len(self.timeout) != count:
            raise SettingAtError(("timeout",), f"{len(self.timeout)} for {count} targets")
        each = self.timeout if isinstance(self.timeout, tuple) else (self.timeout,) * count
        if self.hedge and NEVER in each[:-1]:
            raise SettingAtError(("hedge",), "needs a timeout after which the next one is asked")

    @model_serializer(mode="wrap")
    def _in_force(self, serialize: Any) -> dict[str, Any]:
        """Leave out the options of other kinds of routes."""
        kind, found = self.kind, serialize(self)
        kept = {kind, *[option for option, owner in OPTIONS.items() if owner == kind]}
        return {name: value for name, value in found.items() if name in kept}


def check_name(name: str) -> None:
    """Raise SettingError for a name that clients could not use."""
    if not name.strip() or AT in name:
        raise SettingError(f"{name!r} cannot name a route: {AT} is for lanes, as in ROUTE{AT}lane")
