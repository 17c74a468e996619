"""How many of a query's words a document has: a function that several_models.yaml serves."""

from pydantic import BaseModel

import headway


class Pair(BaseModel):
    query: str
    document: str


@headway.batch(size=64)
def overlap(pairs: list[Pair]) -> list[float]:
    """Share of the query's words that are in the document, 0 to 1."""
    return [share(set(each.query.lower().split()), each.document.lower()) for each in pairs]


def share(words: set[str], document: str) -> float:
    return len(words & set(document.split())) / max(1, len(words))
