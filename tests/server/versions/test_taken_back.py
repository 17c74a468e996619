"""A promoted version can be taken back, whatever strategy the file has."""

from headway.server.config.config import ServerConfig
from tests.server.versions.test_versions import LANES, post, served, state

KEPT = {
    "config": {
        "engine": {"strategy": {"chunk": 256}},
        "lanes": {"chat": {"step_tokens": {"least": 64}}},
    },
    "reason": "chat keeps some of each step, which whole prompts could not",
}


def test_a_version_whose_lanes_do_not_go_with_the_files_strategy_can_be_taken_back(tmp_path):
    engine = {"strategy": {"join": "continuous", "chunk": "whole"}, "slots": 4}
    store = {"store": str(tmp_path / "v.db")}
    config = ServerConfig(lanes=LANES, engine=engine, versions=store)
    with served(config) as (client, _):
        assert post(client, "", KEPT).status_code == 200
        assert post(client, "/2/promote").status_code == 200
        more = post(client, "", {"config": {"engine": {"slots": 2}}, "reason": "fewer"})
        assert more.status_code == 200, more.text
        taken = post(client, "/2/rollback", {"why": "no"})
        assert taken.status_code == 200, taken.text
        assert [state(client, number) for number in (1, 2)] == ["promoted", "rolled back"]
