"""An LLM as a stage (LLMPort): the items are prompts, batched continuously as usual."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from headway.core.request import Finish
from headway.errors import EngineDownError, HeadwayError, SettingError
from headway.live.callers import News
from headway.llm.answer import Answer
from headway.llm.offered_answers import OfferedAnswers
from headway.llm.options import Options
from headway.pipelines.ports import Ears
from headway.pipelines.workflow import Outcome, Work


class _Asked(NamedTuple):
    work: Work
    answer: Answer


class LLMPort:
    """An LLM as a stage. Its engine may have other callers. A result is a Completion; the pieces of
    a stream are Deltas.

    An LLM serves its requests in its own order. It ends requests whose workflow's deadline is over,
    and ignores the stage's own deadline.
    """

    def __init__(self, llm: OfferedAnswers, options: Options, ears: Ears) -> None:
        """options: of every request. Raises SettingError or PromptError if the LLM cannot obey."""
        if options.n > 1:
            raise SettingError("a stage gives one result for an item: n must be 1")
        llm.check(options)
        self._llm, self._options, self._ears = llm, options, ears
        self._asked = dict[str, _Asked]()  # by id of the request

    def offer(self, works: Sequence[Work]) -> None:
        asked = list[_Asked]()
        for work in works:
            answer = self._llm.prepare(work.value, self._options)
            timed = replace(answer.request, due=work.due, end_by=work.workflow.end_by)
            answer.request = timed
            work.ticket = timed.id
            asked.append(_Asked(work, answer))
        self._asked.update({each.work.ticket: each for each in asked})
        try:
            self._llm.offer([each.answer for each in asked], self)
        except BaseException:
            for each in asked:
                self._asked.pop(each.work.ticket, None)
            raise

    def drop(self, works: Sequence[Work]) -> None:
        self._llm.drop([work.ticket for work in works])

    def drain(self) -> float:
        return self._llm.drain

    def tell(self, news: News) -> None:
        """Take news of a request, or of the engine's end, in the engine's thread."""
        if isinstance(news, EngineDownError):
            left, self._asked = self._asked, {}
            for each in left.values():
                each.answer.error = news
                self._ears.ended(each.work, partial(self._outcome, each.answer, Finish.ERROR))
            return
        each = self._asked[news.id]
        if news.finish:
            del self._asked[news.id]
        try:
            delta = self._llm.hear(each.answer, news)
        except HeadwayError as error:
            each.answer.error = error
        else:
            self._ears.piece(each.work, delta)
        if news.finish:
            self._ears.ended(each.work, partial(self._outcome, each.answer, news.finish))

    def flush(self) -> None:
        """Do nothing: all news of a step have been told."""

    def _outcome(self, answer: Answer, finish: Finish, work: Work) -> Outcome:
        done = self._llm.completed(answer)
        if done.error is not None:
            return Outcome(error=done.error, finish=finish, row=done.row)
        return Outcome(done, row=done.row)
