"""Models as stages of a pipeline, with the embedded model really running."""

import pytest

from headway import LLM, Options, Pipeline, each, stage
from headway.core.policies.join import Static
from headway.core.policies.policies import Policies
from headway.core.request import NEVER, Finish
from headway.errors import DeadlineError, PromptError, SettingError

FEW = Options(max_tokens=6)
PROMPTS = ["def first(", "import json", "for item in", "class Reader"]


@pytest.fixture(scope="module")
def llm():
    with LLM(context=256, slots=8) as made:
        yield made


def prompted(names):
    return [[f"def {name}{at}(" for at in range(3)] for name in names]


def test_a_model_stage_generates_the_same_as_the_model_alone(llm):
    rows = []
    with Pipeline(stage(llm, options=FEW), rows=rows.append) as made:
        futures = [made.submit(prompt) for prompt in PROMPTS]
        texts = [future.result(60).text for future in futures]
    assert texts == [answer.text for answer in llm.generate(PROMPTS, FEW)]
    for row in rows:
        row.check()
        (visit,) = row.visits
        assert (visit.stage, visit.batch, row.good) == ("generate", 0, True)
        assert visit.service > 0 and row.nanoseconds > 0


def test_a_model_stage_generates_for_each_element_and_streams_if_it_is_last(llm):
    with Pipeline(prompted >> each(stage(llm, options=FEW))) as made:
        answers = made.call("name")
        prompts = prompted(["name"])[0]
        assert [each.text for each in answers] == [each.text for each in llm.generate(prompts, FEW)]
    with Pipeline(
        stage(lambda names: prompted(names)[0][:1], name="one") >> stage(llm, options=FEW)
    ) as made:
        deltas = list(made.stream("name", deadline=60))
        assert len(deltas) > 1 and deltas[-1].finish
        assert "".join(delta.text for delta in deltas) == made.call("name").text
        left = made.stream("name")
        next(left)
        left.close()


def test_a_callback_that_raises_does_not_stop_the_model(llm, caplog):
    def exits(future):
        raise SystemExit(1)

    made = Pipeline(stage(llm, options=FEW))
    futures = [made.submit(prompt) for prompt in PROMPTS]
    for future in futures:
        future.add_done_callback(exits)
    texts = [future.result(30).text for future in futures]
    made.close()
    assert texts == [answer.text for answer in llm.generate(PROMPTS, FEW)]
    assert set(caplog.messages) == {"a caller could not be told its result"}


def test_embed_and_score_pairs_can_be_stages(llm):
    pairs = [("a list", "list.append adds"), ("json", "json.dumps"), ("a list", "json")]
    apart = [llm.score(query, [page])[0] for query, page in pairs]
    assert llm.score_pairs(pairs) == pytest.approx(apart, abs=1e-5)
    with Pipeline(stage(lambda lists: lists, name="in") >> each(stage(llm.score_pairs))) as made:
        assert made.call(pairs) == pytest.approx(apart, abs=1e-5)
    with Pipeline(stage(llm.embed)) as made:
        assert made.call("a list") == pytest.approx(llm.embed("a list")[0], abs=1e-5)


def test_an_error_a_deadline_or_a_cancel_ends_its_own_workflow_alone(llm):
    rows = []
    with Pipeline(stage(llm, options=FEW), rows=rows.append) as made:
        with pytest.raises(PromptError, match="the prompt has token -1"):
            made.call([-1])
        with pytest.raises(DeadlineError, match="in stage 'generate'"):
            made.call("import", deadline=1e-9)
        gone = made.submit("import")
        gone.cancel()
        assert made.call("import").text == llm.generate(["import"], FEW)[0].text
    finishes = [row.finish for row in rows]
    assert finishes.count(Finish.ERROR) == finishes.count(Finish.EXPIRED) == 1
    assert all(row.end_by == NEVER or row.finish is Finish.EXPIRED for row in rows)


def test_a_closed_model_fails_the_workflow():
    with LLM(context=64, slots=2) as short:
        made = Pipeline(stage(short, options=FEW))
    with pytest.raises(Exception, match="the engine is closed"):
        made.call("import")
    made.close()


@pytest.mark.parametrize(
    "wishes, said",
    [
        ({"options": Options(n=2)}, "n must be 1"),
        ({"lane": "fast"}, "an LLM has one lane"),
        ({"size": 3}, "there is no setting 'size' of an LLM"),
        ({"options": Options(temperature=-1)}, "temperature"),
    ],
)
def test_an_invalid_setting_of_a_model_stage_is_refused(llm, wishes, said):
    with pytest.raises(SettingError, match=said):
        Pipeline(stage(llm, **wishes))


def test_a_group_that_waits_until_it_is_full_is_refused():
    policies = Policies(Static(2), step_tokens=512)
    said = pytest.raises(SettingError, match="Static waits until its group is full")
    with (
        LLM(context=64, slots=2, policies=policies) as static,
        Pipeline(stage(static)) as made,
        said,
    ):
        made.call("import")
