"""Clients at their own limits during a trial: the version is healthy and is not rolled back."""

from collections import deque

import pytest

from headway.rollout.plan import TrialPlan
from headway.rollout.trial import Trial
from headway.server.answering.arrival import Arrival
from headway.server.answering.refusal import Refusal
from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.config.tenant import Tenant
from headway.server.protocol.problem import Problem
from headway.server.versions.live_trial import EngineWatcher
from tests.server.versions.test_versions import (
    ADMIN,
    CHANGE,
    LANES,
    SHORT,
    USER,
    post,
    served,
)

POOR = {"name": "poor", "sha256": digest(USER).hex(), "tokens_per_minute": 40}
LATE = {"name": "late", "sha256": digest(USER).hex()}


@pytest.mark.parametrize(
    "key, headers, status, code",
    [
        (POOR, {}, 429, "rate_limit_exceeded"),
        (LATE, {"x-headway-timeout-ms": "20"}, 408, "deadline_exceeded"),
    ],
)
def test_a_client_at_its_own_limit_does_not_roll_a_version_back(
    tmp_path, work_clock, key, headers, status, code
):
    keys = [{"name": "ops", "sha256": digest(ADMIN).hex(), "admin": True}, key]
    engine = {"strategy": {"join": "continuous", "chunk": 256}, "slots": 4}
    store = {"store": str(tmp_path / "v.db")}
    config = ServerConfig(lanes=LANES, engine=engine, versions=store, keys=keys)
    mine = {"authorization": f"Bearer {USER}", "x-headway-lane": "chat", **headers}
    with served(config, work_clock.slowed) as (client, front):
        post(client, "", {**CHANGE, "rollback": {"fewest": 5}})
        post(client, "/2/start", {**SHORT, "longest": "3s", "seed": 3})
        body = {"prompt": "one", "max_tokens": 30}
        answers = work_clock.asked(
            front, lambda number: client.post("/v1/completions", json=body, headers=mine)
        )
        told = [each for each in answers if each.status_code == status]
        assert len(told) > 20 and {each.json()["error"]["code"] for each in told} == {code}
        found = client.get("/v1/versions/2").json()
        assert found["state"] == "proposed" and found["why"].startswith("its time is over")


@pytest.mark.parametrize(
    "code, own_start, failed",
    [
        ("lane_full", False, 20),
        ("lane_full", True, 0),
        ("rate_limit_exceeded", False, 0),
        ("spend_limit_reached", False, 0),
    ],
)
def test_refusals_at_the_door_count_unless_by_the_clients_own_limit(code, own_start, failed):
    trial, notes = Trial(TrialPlan(), ("chat",), 0), deque()
    place = next(n for n in range(9) if trial.times.has_candidate(n))
    arrival = Arrival(Tenant("app", "", frozenset(), "", ""), {}, trial.times.end(place) - 1)
    refusal = Refusal(Problem(429, "no", code=code), "chat", arrival, "chat", 20, own_start)
    EngineWatcher(trial, notes, {}, 0).refused_early(refusal)
    for note in notes:
        note()
    assert len(trial._recent) == failed
    assert len(trial._past) == (20 if code == "lane_full" else 0)
