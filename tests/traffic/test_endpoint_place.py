"""An endpoint's shares of the engine: from the YAML file to the settings of its lane."""

import pytest

from headway.core.lane import Lane, Share
from headway.errors import SettingError
from headway.traffic.from_yaml import read_endpoints

ENDPOINT = "chat: {{arrivals: poisson, prompt: 9, answer: 9, {}}}"


def lane_of(folder, fields):
    path = folder / "lanes.yaml"
    path.write_text(ENDPOINT.format(fields))
    (service,) = read_endpoints(path)
    return service.endpoint.lane({})


def test_the_stated_limits_become_fields_of_the_lane(tmp_path):
    fields = (
        "slots: {least: 1, most: 8}, blocks: {most: 40}, step_tokens: {least: 9, most: 96}, "
        "chunk: 64, max_waiting: 5, max_waiting_tokens: 700"
    )
    assert lane_of(tmp_path, fields) == Lane(
        "chat",
        max_waiting=5,
        max_waiting_tokens=700,
        slots=Share(1, 8),
        blocks=Share(0, 40),
        step_tokens=Share(9, 96),
        chunk=64,
    )
    assert lane_of(tmp_path, "weight: 1") == Lane("chat")
    between = lane_of(tmp_path, "slots: {least: 1, between: [2, 8]}")
    assert between == Lane("chat", slots=Share(1, 8, 2))


@pytest.mark.parametrize(
    "fields, said",
    [
        ("slot: {most: 3}", "lanes.yaml: chat: 'slot' is not known; did you mean slots"),
        ("slots: {mots: 3}", "chat: slots: 'mots' is not known; did you mean most"),
        ("step_tokens: {least: 9, most: 8}", "chat: step_tokens: a share is from 9 to 8"),
        ("slots: 3", "chat: slots: a mapping of names to values is wanted, not 3"),
        ("slots: {least: 3, most: 2}", "chat: slots: a share is from 3 to 2"),
        ("slots: {between: [3, 2]}", "chat: slots: between 3 and 2: the first must not exceed"),
        ("slots: {between: [3]}", "chat: slots: between is two numbers, not 1"),
        ("slots: {between: 3}", "chat: slots: between is 3; a list of whole numbers is wanted"),
        ("slots: {between: [1, 3], most: 3}", "chat: slots: say either most or between"),
        ("blocks: {between: [1, 3]}", "chat: blocks: 'between' is not known"),
        ("blocks: {most: 1.5}", "chat: blocks: most is 1.5; a whole number is wanted"),
        ("chunk: 0", "chat: chunk is 0; it must be 1 or more"),
        ("max_waiting: many", "chat: max_waiting is 'many', not a number"),
    ],
)
def test_an_invalid_limit_is_refused_with_its_place_in_the_file(fields, said, tmp_path):
    with pytest.raises(SettingError, match=said):
        lane_of(tmp_path, fields)
