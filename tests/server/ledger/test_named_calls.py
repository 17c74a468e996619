"""Which call an X-Request-Id names if several calls were sent with it."""

from types import SimpleNamespace

import pytest

from headway.server.config.config import ServerConfig
from headway.server.config.sections.keys import digest
from headway.server.ledger.books import Books
from headway.server.ledger.rows.recent import Recent
from headway.store.ledger.named_call import NamedCall, latest
from tests.server.ledger.kept import stored
from tests.server.ledger.test_ledger_server import BODY, PATH, client_of
from tests.server.running_server import Permitted, fake, serving, until

NAMED = {"x-request-id": "R"}
MODELS = [{"name": "small"}, {"name": "large"}]


def ask(client, model=""):
    answer = client.post(PATH, json=BODY | ({"model": model} if model else {}), headers=NAMED)
    return answer.json()


def whole(front):
    """Whether no more can become known of any call."""
    books = [each for model in front.models for each in model.admission.watchers]
    return not any(getattr(each, "_calls", None) for each in books)


@pytest.mark.parametrize("order", [["small", "large"], ["large", "small"]])
def test_a_request_id_names_its_latest_call_of_any_model(order):
    config = ServerConfig(models=MODELS)
    with serving(config, fake) as (url, front), client_of(url) as client:
        answers = []
        for model in order:
            answers.append(ask(client, model)["id"])
            until(lambda: whole(front))
        assert client.get("/v1/requests/R").json()["id"] == answers[1]
        assert client.get(f"/v1/requests/{answers[0]}").json()["id"] == answers[0]


def test_the_latest_calls_of_several_models_are_merged_the_latest_end_first():
    def book(*ends):
        calls = [({"arrived": end - 1, "wall_ns": 1},) for end in ends]
        return SimpleNamespace(latest=lambda tenant: iter(calls))

    merged = Books([book(9, 4), book(7, 5, 1)]).latest("")
    assert [rows[0]["arrived"] + 1 for rows in merged] == [9, 7, 5, 4, 1]


def test_a_request_id_names_a_refusal_if_it_is_the_latest_call():
    key = {"name": "a", "sha256": digest("a").hex(), "requests_per_minute": 1}
    with serving(ServerConfig(keys=[key]), fake) as (url, front), client_of(url, "a") as client:
        answer = ask(client)["id"]
        until(lambda: whole(front))
        assert client.get("/v1/requests/R").json()["id"] == answer
        assert ask(client)["error"]["code"] == "rate_limit_exceeded"
        assert client.get("/v1/requests/R").json()["code"] == "rate_limit_exceeded"


def test_a_request_id_names_the_attempt_of_a_route_whose_answer_was_sent(tmp_path):
    ledger = {"url": str(tmp_path / "ledger.db"), "flush": "50ms"}
    route = {"fallback": ["small", "large"], "timeout": ["100ms", "none"]}
    config = ServerConfig(models=MODELS, routes={"mine": route}, ledger=ledger)
    slow = Permitted()

    def engine(config):
        return (slow.engine if config.model.served_name == "small" else fake)(config)

    with serving(config, engine) as (url, front), client_of(url) as client:
        answer = ask(client, "mine")["id"]
        assert answer.endswith(".2")
        until(lambda: client.get(f"/v1/requests/{answer}").json()["status"] == "ended")
        assert client.get("/v1/requests/R").json()["id"] == answer, "the other is not whole"
        slow.permits.release(1_000)
        until(lambda: len(stored(tmp_path)) == 2)
        assert client.get("/v1/requests/R").json()["id"] == answer
        assert client.get(f"/v1/requests/{answer[:-1]}1").json()["id"] == f"{answer[:-1]}1"
        labelled = client.post("/v1/outcomes", json={"request": "R", "label": "resolved"}).json()
        assert labelled["request"] == answer
        for book in front.ledger.books.all:
            book._recent._calls.clear()
        assert client.get("/v1/requests/R").json()["id"] == answer, "from the store"


def test_latest_chooses_the_latest_request_and_its_attempt_that_was_sent():
    early, sent, late = NamedCall("a.1", 1, False), NamedCall("a.2", 2, True), NamedCall("b", 9, 0)
    lost = NamedCall("a.3", 3, False)
    assert latest([early, sent, lost], "R") == sent
    assert latest([early, lost], "R") == lost
    assert latest([late, early, sent], "R") == late
    assert latest([late, early, sent], "a.1") == early


def test_the_oldest_calls_are_forgotten_with_their_names():
    recent = Recent(2)
    for number in range(5):
        recent.add([{"tenant": "t", "call": f"c{number}", "request_id": "R"}])
    assert [rows[0]["call"] for rows in recent.find("t", "R")] == ["c3", "c4"]
    assert list(recent.find("t", "c0")) == [] and len(recent._names["t", "R"]) == 2


def test_calls_of_many_requests_are_forgotten_sooner():
    recent = Recent(4)  # with 16 rows at most
    for number in range(4):
        recent.add([{"tenant": "t", "call": f"c{number}", "request_id": "R"}] * 7)
    assert [rows[0]["call"] for rows in recent.find("t", "R")] == ["c2", "c3"]
