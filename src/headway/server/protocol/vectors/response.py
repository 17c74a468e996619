"""vector_json: the JSON of answers with vectors, in pieces because they are long.

No piece takes longer than a vector does, about a millisecond for a thousand numbers.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
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
    last fields, such as the usage. A piece is empty where something was only computed.

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
    comma = ""
    for item in items:
        yield f"{comma}{item}" if item else ""
        comma = "," if item else comma
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


def _scores(form: VectorForm, vectors: Sequence[bytes], card: ModelCard) -> Iterator[float]:
    if form.pooling == "head":
        yield from (score(raw, card) for raw in vectors)
        return
    queries, texts = vectors[: form.queries], vectors[form.queries :]
    query = embedding(queries[0])
    for i, raw in enumerate(texts):
        if i and len(queries) > 1:
            query = embedding(queries[i])
        yield similarity(query, embedding(raw))


def _ranked(form: VectorForm, found: Iterable[float]) -> Iterator[str]:
    """The ranked documents: the best first; of equal ones, the earlier first."""
    scores = list[float]()
    for each in found:
        scores.append(each)
        yield ""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    for i in order[: form.top]:
        text = {"document": {"text": form.documents[i]}} if form.documents else {}
        yield compact({"index": i, "relevance_score": scores[i]} | text)
