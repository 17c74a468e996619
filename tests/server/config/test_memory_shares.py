"""How the memory of a device is divided among its models."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headway.errors import MemoryPlanError
from headway.server.config.config import ServerConfig
from headway.server.config.memory import ENDLESS, Need, divide, engines_beside, memory_shares

GIB = 1 << 30


@st.composite
def needs(draw):
    found = []
    for number in range(draw(st.integers(1, 5))):
        weights = draw(st.integers(0, 50))
        least = weights + draw(st.integers(0, 20))
        most = draw(st.one_of(st.just(ENDLESS), st.integers(least, least + 80)))
        fixed = draw(st.one_of(st.just(0), st.integers(1, 90)))
        found.append(Need(f"m{number}", weights, least, most, fixed))
    return found


@given(needs(), st.integers(0, 400))
def test_shares_fit_and_are_max_min_fair(models, free):
    try:
        shares = divide(free, models)
    except MemoryPlanError as error:
        event("refused")
        short = [each for each in models if each.fixed and each.fixed < each.least]
        assert short or sum(each.fixed or each.least for each in models) > free
        assert any(each.name in str(error) for each in models)
        return
    assert sum(shares.values()) <= free and set(shares) == {each.name for each in models}
    flexible = [each for each in models if not each.fixed]
    assert all(shares[each.name] == each.fixed for each in models if each.fixed)
    for each in flexible:
        assert each.least <= shares[each.name] <= max(each.most, each.least)
    # Max-min fairness: a model that can use more has, beside its weights, no less than any model
    # that is above its least. What is left is less than a byte for each model that can use more.
    wanting = [each for each in flexible if shares[each.name] < each.most]
    level = min([shares[each.name] - each.weights for each in wanting], default=None)
    if level is not None:
        event("somebody wants more")
        for each in flexible:
            if shares[each.name] > each.least:
                assert shares[each.name] - each.weights <= level
        assert free - sum(shares.values()) < max(1, len(wanting))


def test_models_get_equal_parts_beside_their_weights():
    models = [Need("large", 14, 15, ENDLESS), Need("small", 2, 3, ENDLESS), Need("enc", 1, 1, 2)]
    assert divide(37, models) == {"large": 23, "small": 11, "enc": 2}, "the encoder needs one more"
    assert divide(37, [*models[:2], Need("fixed", 1, 1, 9, 9)])["fixed"] == 9


def test_models_that_do_not_fit_are_named_with_the_least_of_each():
    models = [Need("a", 3 * GIB, 3 * GIB, ENDLESS), Need("b", GIB, 2 * GIB, ENDLESS)]
    with pytest.raises(MemoryPlanError) as error:
        divide(4 * GIB, models)
    assert str(error.value) == (
        "the models do not fit together: a 3.0 GiB, b 2.0 GiB at least, and 4.0 GiB are free"
    )


def shares(models, folder, free_on=None):
    return memory_shares(ServerConfig(models=models), lambda path: folder, free_on)


def test_the_memory_of_each_device_is_divided_by_itself():
    from headway.models import EMBEDDED

    asked = []

    def free_on(device):
        asked.append(device)
        return device, GIB

    gpu = {"device": "cuda:1"}
    models = [
        {"name": "a", **gpu, "memory": 0.5},
        {"name": "b", **gpu},
        {"name": "c", "device": "cpu"},
        {"function": "mine:f"},
    ]
    found = shares(models, EMBEDDED, free_on)
    assert found["a"] == GIB // 2 and 0 < found["b"] <= GIB // 2 and found["c"] == 0
    assert set(asked) == {"cuda:1"}
    assert engines_beside(ServerConfig(models=models)) == 1
    two = [{"name": "c", "device": "cpu"}, {"function": "mine:f", "memory": "64MiB"}]
    assert shares(two, EMBEDDED)["c"] > 0, "the function's memory is kept for it"


def test_weights_that_vllm_widens_count_as_widened():
    from headway.models import EMBEDDED  # 10 MiB in bfloat16

    def config(dtype):
        models = [{"name": "a", "dtype": dtype, "memory": "16MiB"}]
        return ServerConfig(models=models, engine={"executor": "vllm"})

    assert memory_shares(config("bfloat16"), lambda path: EMBEDDED, None) == {"a": 16 << 20}
    with pytest.raises(MemoryPlanError, match=r"a: memory 16\.0 MiB is less than the 20\.\d MiB"):
        memory_shares(config("float32"), lambda path: EMBEDDED, None)


def test_a_model_alone_takes_what_is_free():
    assert shares([{"name": "a"}], None) == {"a": 0}
    assert shares([{"function": "mine:f"}], None) == {}


def test_each_replica_has_its_own_part():
    from headway.models import EMBEDDED

    two = [{"name": "a", "replicas": 2, "device": "cuda"}]
    found = shares(two, EMBEDDED, lambda device: (device, GIB))
    assert found["a#1"] == found["a#2"] > 0 and sum(found.values()) <= GIB
    assert shares([{**two[0], "memory": 0.5}], EMBEDDED, lambda device: (device, GIB)) == {
        "a#1": GIB // 2,
        "a#2": GIB // 2,
    }
    assert engines_beside(ServerConfig(models=[{**two[0], "device": "cpu"}])) == 2
