"""A server that does not come to serve changes no version: its port may be taken, or its model may
not be there."""

import asyncio

from headway.server.config.config import ServerConfig
from headway.server.versions.opening import open_versions
from tests.server.running_server import quiet
from tests.server.versions.test_versions import CHANGE, SHORT, configured, post, served, state

FEWER = {"config": {"engine": {"slots": 2}}, "reason": "fewer"}


def test_a_start_that_fails_ends_no_trial_and_promotes_nothing(tmp_path):
    config = configured(tmp_path)
    other = ServerConfig(lanes={"chat": {"ttft": "9s"}, "bulk": {}}).lanes
    with served(config) as (client, _):
        post(client, "", FEWER)
        post(client, "/2/promote")
        post(client, "", CHANGE)
        post(client, "/3/start", {**SHORT, "longest": "60s"})
        keepers = open_versions(config.model_copy(update={"lanes": other}), quiet())
        assert [each.promoted.number for each in keepers] == [0], "it is not stored yet"
        asyncio.run(keepers.store.close())
        assert [state(client, number) for number in (1, 2, 3)] == [
            *("replaced", "promoted", "on trial"),
        ]
        post(client, "/3/rollback")
