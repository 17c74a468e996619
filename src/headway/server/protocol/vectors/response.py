"""vector_json: the JSON of answers with vectors, in pieces because they are long."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from headway.server.protocol.chunks import compact
from headway.server.protocol.request import VectorForm
from headway.vectors.model_card import ModelCard
from headway.vectors.vectors import embedding, probabilities, score, similarity


def vector_json(
    form: VectorForm,
    about: tuple[str, int, str],
    vectors: Sequence[bytes],
    card: ModelCard,
    ends: dict[str, Any],
) -> Iterator[str]:
    """The answer's JSON, in pieces. about: id, time of creation in Unix seconds, model. ends: the
    last fields, such as the usage.

    Raises PromptError if a vector has fewer dimensions than were asked for.
    """
    id, created, model = about
    head = {"id": id, "created": created, "model": model}
    items: Iterator[str]
    match form.kind:
        case "embeddings":
            items = (_embedded(form, i, raw) for i, raw in enumerate(vectors))
        case "classify":
            items = (_classified(card, i, raw) for i, raw in enumerate(vectors))
        case "score":
            items = (
                compact({"index": i, "object": "score", "score": each})
                for i, each in enumerate(_scores(form, vectors, card))
            )
        case _:
            items = _ranked(form, _scores(form, vectors, card))
    name = "results"
    if form.kind != "rerank":
        head, name = head | {"object": "list"}, "data"
    yield f'{compact(head)[:-1]},"{name}":['
    for i, item in enumerate(items):
        yield f",{item}" if i else item
    yield f"],{compact(ends)[1:]}"


def _embedded(form: VectorForm, index: int, raw: bytes) -> str:
    vector = embedding(raw, form.dimensions, normalized=form.normalized)
    if form.base64:
        found = f'"{b64encode(vector.tobytes()).decode()}"'
    else:
        found = f"[{','.join(map('{:.9g}'.format, vector))}]"  # 9 digits are exact for float32
    return f'{{"object":"embedding","index":{index},"embedding":{found}}}'


def _classified(card: ModelCard, index: int, raw: bytes) -> str:
    found = probabilities(raw, card)
    label = card.labels[found.index(max(found))]
    return compact({"index": index, "label": label, "probs": found, "num_classes": len(found)})


def _scores(form: VectorForm, vectors: Sequence[bytes], card: ModelCard) -> list[float]:
    if form.pooling == "head":
        return [score(raw, card) for raw in vectors]
    made = [embedding(raw) for raw in vectors]
    first, second = made[: form.queries], made[form.queries :]
    if len(first) == 1:
        first = first * len(second)
    return [similarity(*both) for both in zip(first, second, strict=True)]


def _ranked(form: VectorForm, scores: Sequence[float]) -> Iterator[str]:
    """The ranked documents: the best first; of equal ones, the earlier first."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    for i in order[: form.top]:
        text = {"document": {"text": form.documents[i]}} if form.documents else {}
        yield compact({"index": i, "relevance_score": scores[i]} | text)
