"""One look at a live server, its metrics and lanes (ServerLook), and the change between two."""

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from headway.commands.server_answers import refusal, unreachable
from headway.errors import SettingError

KEY = "--key or $HEADWAY_API_KEY"
TIMEOUT = 10.0  # seconds for one answer
MODEL = "model_name"  # a label; empty: requests refused before their model was known
STATE = "headway_engine_state"
ABSENT = ("loading", "down")  # the engine's states without lanes
SHARED = (MODEL, "engine")  # labels that all samples have; a model has one engine

Labels = tuple[tuple[str, str], ...]  # sorted, without the SHARED ones


@dataclass(frozen=True, slots=True)
class ServerLook:
    """What the server said at one moment."""

    samples: Mapping[str, Mapping[Labels, float]]  # by the sample's name
    lanes: Mapping[str, Mapping[str, Any]]  # of /v1/lanes, by name


@dataclass(frozen=True, slots=True)
class Between:
    """Two looks, and what the counters gained between them."""

    before: ServerLook
    after: ServerLook
    seconds: float

    def now(self, name: str, **labels: str) -> float:
        """The later value, summed over the samples with these labels; 0 if there are none."""
        return _sum(self.after, name, labels)

    def was(self, name: str, **labels: str) -> float:
        """The earlier value."""
        return _sum(self.before, name, labels)

    def counted(self, name: str, **labels: str) -> float:
        """How much a counter has grown; after a server restart, its growth from 0."""
        now, was = self.now(name, **labels), self.was(name, **labels)
        return now - was if now >= was else now

    def mean(self, name: str, **labels: str) -> float:
        """The mean of a histogram's values between the looks; 0 if there were none."""
        count = self.counted(f"{name}_count", **labels)
        return self.counted(f"{name}_sum", **labels) / count if count else 0.0

    def above(self, name: str, limit: float, **labels: str) -> float:
        """How many values were above the limit, rounded up to a bucket's bound (or the last)."""
        found = self.after.samples.get(f"{name}_bucket", {})
        bounds = sorted({float(dict(key)["le"]) for key in found})
        if not bounds:
            return 0.0
        at = bounds[min(bisect_left(bounds, limit), len(bounds) - 1)]
        chosen = {dict(key)["le"] for key in found if float(dict(key)["le"]) == at}
        below = sum(self.counted(f"{name}_bucket", le=le, **labels) for le in chosen)
        return self.counted(f"{name}_count", **labels) - below

    def values(self, name: str, label: str) -> list[str]:
        """The values of a label, sorted."""
        return sorted({dict(key)[label] for key in self.after.samples.get(name, {})})


def _sum(look: ServerLook, name: str, labels: Mapping[str, str]) -> float:
    wanted = set(labels.items())
    return sum(v for key, v in look.samples.get(name, {}).items() if wanted <= set(key))


def look_at(url: str, key: str, model: str = "") -> ServerLook:
    """Fetch /metrics and /v1/lanes, and keep what is of one model.

    model: its name; empty: the only one. Raises SettingError if the server's answer is not usable,
    if it has no such model, if it has several and none is named, or if the model's engine is
    loading or down.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise SettingError("--url needs prometheus-client: pip install 'headway[server]'") from None
    text = _get(f"{url}/metrics", key)
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, LookupError) as error:
        raise SettingError(f"{url}/metrics is not Prometheus text") from error
    every = [sample for family in families for sample in family.samples]
    models = {each.labels.get(MODEL, "") for each in every if each.name == "headway_steps_total"}
    if not models:
        raise SettingError(f"{url}/metrics has no metrics of a headway server with a model")
    mine = _named(model, sorted(models))
    samples = dict[str, dict[Labels, float]]()
    for each in every:
        if each.labels.get(MODEL, "") in (mine, ""):
            own = tuple(sorted((k, v) for k, v in each.labels.items() if k not in SHARED))
            found = samples.setdefault(each.name, {})
            found[own] = found.get(own, 0.0) + each.value  # the model's, and those without a model
    for state in ABSENT:
        if samples.get(STATE, {}).get((("state", state),)):
            raise SettingError(
                f"the engine of {mine} is {state} and serves nothing: {url}/ready and the server's "
                "log say why"
            )
    return ServerLook(samples, _lanes(url, key, mine))


def _lanes(url: str, key: str, model: str) -> dict[str, Mapping[str, Any]]:
    """The model's lanes by name. Raises SettingError if there are none for this key."""
    try:
        listed = json.loads(_get(f"{url}/v1/lanes", key))["data"]
        lanes = {each["id"]: each for each in listed if each.get("model", model) == model}
        budgets = [each["budget_ms"] for each in lanes.values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingError(f"{url}/v1/lanes does not answer as a server of headway does") from error
    if not budgets:
        whose = "this key" if key else "anybody without a key"
        raise SettingError(f"{url}/v1/lanes has no lane of {model} for {whose}; see --key")
    return lanes


def _named(model: str, models: list[str]) -> str:
    if model and model not in models:
        raise SettingError(f"there is no model {model!r}; there are {', '.join(models)}")
    if not model and len(models) > 1:
        raise SettingError(f"there are several models: name one with --model: {', '.join(models)}")
    return model or models[0]


def _get(url: str, key: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise SettingError(f"--url is http://HOST:PORT, not {url}")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as answer:
            return str(answer.read().decode("utf-8"))
    except HTTPError as error:
        raise SettingError(f"{url}: {refusal(error, KEY)}") from error
    except (URLError, OSError, ValueError, HTTPException) as error:
        raise SettingError(f"{url} cannot be read: {unreachable(error)}") from error
