"""VectorCalls: embed, score and classify, for a model behind an engine."""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.core.request import Pooling
from headway.errors import PromptError, SettingError
from headway.executor.traits import Traits
from headway.live.engine import LiveEngine
from headway.llm.answer import Answer
from headway.llm.options import Options, integer
from headway.llm.request_builder import Prompt, RequestBuilder, elements
from headway.vectors.model_card import ModelCard
from headway.vectors.vectors import embedding, probabilities, score, similarity, without_padding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROMPT_ONLY = Options(max_tokens=0)
QUERY, DOCUMENT = "query", "document"  # names of prompts, where a model card has them


class Classification(NamedTuple):
    """A text's label, and the probability of each label."""

    label: str  # the most probable label
    probabilities: dict[str, float]  # by label


class VectorCalls:
    """Embeddings, scores and labels of whole prompts. LLM's base; LLM sets the attributes."""

    card: ModelCard
    _builder: RequestBuilder
    _engine: LiveEngine
    _traits: Traits
    _run: Callable[[Sequence[Answer], bool], None]
    _completed: Callable[[Answer], object]

    def embed(
        self,
        texts: Prompt | Iterable[Prompt],
        *,
        pooling: str = "",
        prompt_name: str | None = None,
        dimensions: int = 0,
        normalize: bool | None = None,
        truncate: bool = False,
        progress: bool = True,
    ) -> "NDArray[np.float32]":
        """Embed each text, given as a string or token ids. Returns [texts, d] float32.

        pooling: a value of core.request.Pooling, such as "last" or "mean"; empty: the checkpoint's
        own, else "mean" for an encoder and "last" for a decoder. prompt_name: the model card's
        prompt to put before each text; None: its default, if it has one; empty: none.
        dimensions: keep only this many of the first numbers, for models that were trained for it
        (matryoshka); 0: all.
        normalize: whether to scale vectors to length 1; None: as the model card says, or yes if
        there is none. truncate: cut the end of texts that are longer than the model's context;
        otherwise they raise RefusedError.

        Raises PromptError, SettingError, RefusedError or EngineError.
        """
        import numpy as np

        inputs = listed(texts)
        kind = embedding_pooling(self._traits, self.card, pooling)
        dimensions = integer("dimensions", dimensions)
        before = prompt_of(self.card, prompt_name)
        most = self._engine.load.capacity if truncate else 0
        prompts = [self._encoded(each, before, most) for each in inputs]
        unit = self.card.normalized if normalize is None else normalize
        raw = self._vectors(prompts, kind, progress)
        if not raw:
            return np.zeros((0, 0), np.float32)
        return np.array([embedding(each, dimensions, normalized=unit) for each in raw], np.float32)

    def score(
        self,
        query: str,
        documents: str | Iterable[str],
        *,
        truncate: bool = False,
        progress: bool = True,
    ) -> list[float]:
        """Score how well each document answers the query; higher is better. A single string is one
        document.

        A cross-encoder (a classifier with one label) scores the pair, with the model card's default
        prompt before the query: between 0 and 1 unless the checkpoint says otherwise. With any
        other model, the score is the cosine of both embeddings, made with the model card's prompts
        "query" and "document" if it has them. truncate: cut documents that are too long.

        Raises PromptError, SettingError, RefusedError or EngineError.
        """
        pairs = [(query, each) for each in listed(documents)]
        return self.score_pairs(pairs, truncate=truncate, progress=progress)

    def score_pairs(
        self, pairs: Iterable[tuple[str, str]], *, truncate: bool = False, progress: bool = True
    ) -> list[float]:
        """Score pairs of a query and a document like `score`; the queries may differ."""
        pairs = [_pair(i, each) for i, each in enumerate(pairs)]
        if Pooling.HEAD not in self._traits.poolings:
            has = self.card.prompts
            asked, said = (name if name in has else None for name in (QUERY, DOCUMENT))
            queries = list(dict.fromkeys([query for query, _ in pairs]))
            vectors = self.embed(queries, prompt_name=asked, truncate=truncate, progress=False)
            of = dict(zip(queries, vectors.tolist(), strict=True))  # plain floats, as JSON needs
            documents = [document for _, document in pairs]
            others = self.embed(documents, prompt_name=said, truncate=truncate, progress=progress)
            each = zip(pairs, others.tolist(), strict=True)
            return [similarity(of[query], vector) for (query, _), vector in each]
        check_scores(self.card)
        most = self._engine.load.capacity if truncate else 0
        pair, before = self._builder.tokenizer.encode_pair, self.card.pair_prompt
        prompts = [pair(before + query, document, most) for query, document in pairs]
        return [score(raw, self.card) for raw in self._vectors(prompts, Pooling.HEAD, progress)]

    def classify(
        self,
        texts: Prompt | Iterable[Prompt],
        *,
        truncate: bool = False,
        progress: bool = True,
    ) -> list[Classification]:
        """Label each text, with a checkpoint that has a classification head.

        The probabilities sum to 1, unless the checkpoint says that several labels may be true. For
        a regression they are the model's raw numbers.

        Raises PromptError, SettingError, RefusedError or EngineError.
        """
        self._traits.check_pooling(Pooling.HEAD)
        most = self._engine.load.capacity if truncate else 0
        prompts = [self._encoded(each, "", most) for each in listed(texts)]
        found = []
        for raw in self._vectors(prompts, Pooling.HEAD, progress):
            each = dict(zip(self.card.labels, probabilities(raw, self.card), strict=True))
            found.append(Classification(max(each, key=each.__getitem__), each))
        return found

    def _encoded(self, text: Prompt, before: str, most: int) -> tuple[int, ...]:
        """Token ids of a text, at most `most` of them; 0: all."""
        if isinstance(text, str):
            return self._builder.tokenizer.encode(before + text, most)
        ids = self._builder.encode(text)
        return ids[:most] if most else ids

    def _vectors(
        self, prompts: Sequence[tuple[int, ...]], pooling: str, progress: bool
    ) -> list[bytes]:
        """The vector of each prompt. Raises the first prompt's error, once all have ended."""
        if pooling == Pooling.HEAD:
            prompts = [without_padding(each, self.card.padding) for each in prompts]
        now, tokenizer = self._engine.clock.now(), self._builder.tokenizer
        answers = [
            Answer(self._builder.pooled(each, pooling, now), PROMPT_ONLY, tokenizer)
            for each in prompts
        ]
        self._run(answers, progress)
        for each in answers:
            self._completed(each)
        for each in answers:
            if each.error:
                raise each.error
        return [each.vector for each in answers]


def listed(prompts: Any) -> list[Any]:
    """The prompts as a list. A single text, the ids of one, or a chat becomes a list of one. Raises
    PromptError for what is neither a prompt nor an iterable of prompts."""
    if isinstance(prompts, str):
        return [prompts]
    each = elements(prompts)
    return [each] if each and isinstance(each[0], Integral | Mapping) else each


def _pair(number: int, given: object) -> tuple[str, str]:
    """The query and the document of a pair. Raises PromptError unless the pair is two texts."""
    match given:
        case [str(query), str(document)]:
            return query, document
    raise PromptError(
        f"pair {number} must be two texts, a query and a document, not {reprlib.repr(given)}"
    )


def embedding_pooling(traits: Traits, card: ModelCard, asked: str) -> str:
    """The pooling with this name; empty: the checkpoint's own. Raises SettingError."""
    if Pooling.HEAD in traits.poolings:
        raise SettingError("the model is a classifier: it gives scores and labels, no embeddings")
    found = asked or card.pooling or next(iter(traits.poolings), "")
    traits.check_pooling(found)
    return found


def prompt_of(card: ModelCard, name: str | None) -> str:
    """The prompt to put before a text. name: in the model card; None: the default; empty: no
    prompt. Raises PromptError for a name that the card does not have."""
    name = card.default_prompt if name is None else name
    if name and name not in card.prompts:
        known = ", ".join(card.prompts) or "none"
        raise PromptError(f"the model card has no prompt {name!r}; it has {known}")
    return card.prompts[name] if name else ""


def check_scores(card: ModelCard) -> None:
    """Raise SettingError unless the classifier gives a pair exactly one score."""
    if len(card.labels) != 1:
        count = len(card.labels)
        raise SettingError(f"the model gives {count} labels, not one score: use classify")
