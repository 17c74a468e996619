"""A configuration that is proposed, and what its author expects of it (Proposal)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps
from typing import Any

from headway.errors import SettingError
from headway.rollout.guardrail import ANY_LANE, EVERYWHERE, Guardrail, check_figure
from headway.rollout.plan import HardStop

MOST_TEXT = 2_000  # characters of a reason


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected gain: by how much this figure of this lane changes."""

    figure: str
    lane: str
    change: float  # -0.15: 15 % less or, for a share, 15 points less

    def __post_init__(self) -> None:
        check_figure(self.figure)
        if self.lane == ANY_LANE:
            raise SettingError("expects: lane is the name of one lane, not '*'")
        if not -1 < self.change < 0:
            raise SettingError(
                f"expects: change is below 0, because less is better of {self.figure}: -0.15 for "
                "15 % less, or for 15 points of a share of misses"
            )


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed configuration: stated before its trial, kept with the result, never changed."""

    config: Mapping[str, Any]  # the sections `engine` and `lanes`, with every value resolved
    author: str
    reason: str
    expects: Expectation | None = None
    pressure: str = ""  # what it may make worse, and for whom
    owner: str = ""  # who answers for the pressure
    guardrails: tuple[Guardrail, ...] = EVERYWHERE
    rollback: HardStop = HardStop()
    model: str = ""  # its entry of `models`, by the entry's own name
    base: int = 0  # number of the version that was promoted then; 0: not known

    def __post_init__(self) -> None:
        if not self.author or not self.reason:
            raise SettingError("a version has an author and a reason")
        if max(map(len, (self.author, self.reason, self.pressure, self.owner))) > MOST_TEXT:
            raise SettingError(f"a text of a version has {MOST_TEXT} characters at most")
        if self.pressure and not self.owner:
            raise SettingError("somebody owns the pressure that a version may create: owner")
        for lane in self.lanes_named:
            if lane != ANY_LANE and lane not in self.config["lanes"]:
                raise SettingError(f"there is no lane {lane!r}")

    @property
    def lanes_named(self) -> list[str]:
        """The lanes that its guardrails and its expectation name."""
        named = [each.lane for each in self.guardrails]
        return [*named, self.expects.lane] if self.expects else named

    @property
    def digest(self) -> str:
        """The digest of its configuration."""
        return digest_of(self.config)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Proposal":
        """The proposal that `as_json` wrote."""
        expects = plain["expects"]
        return cls(
            config=plain["config"],
            author=plain["author"],
            reason=plain["reason"],
            expects=Expectation(**expects) if expects else None,
            pressure=plain["pressure"],
            owner=plain["owner"],
            guardrails=tuple([Guardrail(**each) for each in plain["guardrails"]]),
            rollback=HardStop(**plain["rollback"]),
            model=plain["model"],
            base=plain.get("base", 0),
        )


def digest_of(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, hexadecimal."""
    return sha256(dumps(config, sort_keys=True).encode()).hexdigest()


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Each setting that differs: its dotted path and both values. A missing value is None."""
    found = list[tuple[str, Any, Any]]()
    for key in dict.fromkeys((*first, *second)):
        one, other = first.get(key), second.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            inner = differences(one, other)
            found += [(f"{key}.{path}", before, after) for path, before, after in inner]
        elif one != other:
            found.append((str(key), one, other))
    return found


def undone(
    base: Mapping[str, Any], promoted: Mapping[str, Any], version: Mapping[str, Any]
) -> list[str]:
    """The settings in which the promoted configuration differs from `base`, and a version that was
    proposed as a change of `base` from the promoted one: their dotted paths."""
    since = [path for path, *_ in differences(base, promoted)]
    differs = [path for path, *_ in differences(promoted, version)]
    return [path for path in differs if any(_overlap(path, each) for each in since)]


def _overlap(path: str, other: str) -> bool:
    """Whether a dotted path is the other, or leads into it: a whole section may be one value."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The base, overridden by a change's values. A list is one value."""
    made = dict(base)
    for key, value in change.items():
        before = made.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        made[key] = merged(before, value) if both else value  # type: ignore[arg-type]
    return made


def named(states: Sequence[str]) -> str:
    """The states in words: "proposed or rolled back"."""
    return " or ".join(states)
