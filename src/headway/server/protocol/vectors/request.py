"""Turns a vector path's body into its prompts and the form of its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headway.core.request import Pooling
from headway.errors import PromptError, SettingError
from headway.executor.traits import Traits
from headway.llm.options import Options
from headway.llm.vector_calls import DOCUMENT, QUERY, check_scores, embedding_pooling, prompt_of
from headway.server.protocol.limits import RequestLimits
from headway.server.protocol.problem import wrong
from headway.server.protocol.request import ApiRequest, Pair, Prompt, VectorForm, prompts_of
from headway.server.protocol.vectors.fields import (
    ClassifyBody,
    EmbeddingBody,
    RerankBody,
    ScoreBody,
    VectorBody,
)
from headway.vectors.model_card import ModelCard

NOTHING = Options(max_tokens=0)
Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class VectorModel:
    """What is known about the model's vectors."""

    traits: Traits
    card: ModelCard

    @property
    def is_classifier(self) -> bool:
        return Pooling.HEAD in self.traits.poolings

    @property
    def padding(self) -> int:
        """The token that a classifier drops from the end of a prompt; -1: there is none."""
        return self.card.padding if self.is_classifier else -1

    def pooling(self, asked: str | None = None) -> str:
        """The pooling for embeddings. Raises Problem."""
        return _asked(lambda: embedding_pooling(self.traits, self.card, asked or ""), "pooling")

    def prompt(self, name: str | None) -> str:
        """The prompt to put before a text. Raises Problem."""
        return _asked(lambda: prompt_of(self.card, name), "prompt_name")


def embedding_request(body: EmbeddingBody, limits: RequestLimits, model: VectorModel) -> ApiRequest:
    """The request of an embeddings body. Raises Problem."""
    prompts, before = prompts_of(body.input, "input"), model.prompt(body.prompt_name)
    if before:
        prompts = tuple([before + each if isinstance(each, str) else each for each in prompts])
    if (wanted := body.dimensions or 0) > (width := model.traits.width):
        raise wrong(f"'dimensions': the model has {width}, not {wanted}", "dimensions")
    unit = model.card.normalized if body.normalize is None else body.normalize
    form = VectorForm(
        "embeddings",
        model.pooling(body.pooling),
        "input",
        dimensions=wanted,
        normalized=unit,
        base64=body.encoding_format == "base64",
    )
    return _request(body, prompts, form, limits)


def rerank_request(body: RerankBody, limits: RequestLimits, model: VectorModel) -> ApiRequest:
    """The request of a rerank body. Raises Problem."""
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    returned, most = body.return_documents is not False, body.max_tokens_per_doc or 0
    form = VectorForm(
        "rerank",
        _scoring(model),
        "documents",
        top=body.top_n or len(texts),
        documents=tuple(texts) if returned else (),
        first="" if model.is_classifier else "query",
        padding=model.padding,
        most=0 if model.is_classifier else most,
    )
    if most and model.is_classifier and not body.truncate_prompt_tokens:
        body = body.model_copy(update={"truncate_prompt_tokens": -1})
    return _request(body, _scored([body.query], texts, model, most), form, limits)


def score_request(body: ScoreBody, limits: RequestLimits, model: VectorModel) -> ApiRequest:
    """The request of a score body. Raises Problem."""
    first, second = (
        [each] if isinstance(each, str) else list(each) for each in (body.text_1, body.text_2)
    )
    if not first or not second:
        raise wrong("'text_1' and 'text_2' must have texts", "text_1" if not first else "text_2")
    if len(first) not in (1, len(second)):
        why = f"{len(first)} texts, which are neither one nor as many as 'text_2' has"
        raise wrong(f"'text_1': {why}, {len(second)}", "text_1")
    kind = _scoring(model)
    form = VectorForm(
        "score",
        kind,
        "text_2",
        queries=len(first),
        first="" if model.is_classifier else "text_1",
        padding=model.padding,
    )
    return _request(body, _scored(first, second, model), form, limits)


def classify_request(body: ClassifyBody, limits: RequestLimits, model: VectorModel) -> ApiRequest:
    """The request of a classify body. Raises Problem."""
    _asked(lambda: model.traits.check_pooling(Pooling.HEAD), "model")
    form = VectorForm("classify", Pooling.HEAD, "input", padding=model.padding)
    return _request(body, prompts_of(body.input, "input"), form, limits)


def _scoring(model: VectorModel) -> str:
    """The pooling by which texts are scored. Raises Problem."""
    if not model.is_classifier:
        return model.pooling()
    _asked(lambda: check_scores(model.card), "model")
    return Pooling.HEAD


def _scored(
    first: Sequence[str], second: Sequence[str], model: VectorModel, most: int = 0
) -> tuple[Prompt, ...]:
    """The prompts to score: pairs for a classifier, else the first texts followed by the second
    ones, to embed. most: tokens of a pair's second text; 0: all."""
    if model.is_classifier:
        firsts = [model.card.pair_prompt + each for each in first]
        firsts *= len(second) if len(first) == 1 else 1
        return tuple([Pair(*both, most) for both in zip(firsts, second, strict=True)])
    has = model.card.prompts
    asked, said = (has.get(name, "") for name in (QUERY, DOCUMENT))
    return tuple([asked + each for each in first] + [said + each for each in second])


def _request(
    body: VectorBody, prompts: tuple[Prompt, ...], form: VectorForm, limits: RequestLimits
) -> ApiRequest:
    alone = bool(form.first) and form.queries == 1  # one query for all texts: it does not count
    if (count := len(prompts) - alone) > limits.inputs:
        why = f"{count} texts, where {limits.inputs} are the most of one call"
        raise wrong(f"'{form.field}': {why}", form.field)
    return ApiRequest(
        chat=False,
        model=body.model or "",
        tier=body.service_tier or "",
        prompts=prompts,
        options=NOTHING,
        stream=False,
        usage=False,
        running_usage=False,
        skip_special=True,
        shaped="",
        cut=body.truncate_prompt_tokens or 0,
        vectors=form,
    )


def _asked(ask: Callable[[], Checked], field: str) -> Checked:
    """What `ask` returns. Its SettingError or PromptError is raised as a Problem of this field."""
    try:
        return ask()
    except SettingError as error:
        raise wrong(str(error), field, "not_supported") from error
    except PromptError as error:
        raise wrong(str(error), field) from error
