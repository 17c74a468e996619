"""The routes that answer with vectors: /v1/embeddings, /v1/rerank, /v1/score, /v1/classify."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from headway.server.http.body import BodyReader
from headway.server.http.openapi import generation
from headway.server.http.routes.answers import answer
from headway.server.intake.service import Service
from headway.server.protocol.limits import RequestLimits
from headway.server.protocol.request import ApiRequest
from headway.server.protocol.vectors.fields import (
    ClassifyBody,
    EmbeddingBody,
    RerankBody,
    ScoreBody,
    VectorBody,
)
from headway.server.protocol.vectors.request import (
    VectorModel,
    classify_request,
    embedding_request,
    rerank_request,
    score_request,
)

NAMES = "embeddings", "rerank", "score", "classify"
VECTORS = frozenset([f"{at}/{name}" for at in ("", "/v1", "/v2") for name in NAMES])
Body = TypeVar("Body", bound=VectorBody)
Make = Callable[[Body, RequestLimits, VectorModel], ApiRequest]


def vector_routes(service: Service, bodies: BodyReader) -> APIRouter:
    """The routes that answer with vectors. Each input is a request in the call's lane."""
    router = APIRouter(tags=["vectors"])

    async def answered(request: Request, body: type[Body], name: str, make: Make[Body]) -> Response:
        return await answer(service, bodies, request, body, name, make)

    @router.post("/v1/embeddings", **generation(EmbeddingBody, streams=False))
    async def embeddings(request: Request) -> Response:
        """The embedding of each input."""
        return await answered(request, EmbeddingBody, "embeddings", embedding_request)

    # Cohere's and vLLM's clients use different paths.
    @router.post("/v2/rerank", include_in_schema=False)
    @router.post("/rerank", include_in_schema=False)
    @router.post("/v1/rerank", **generation(RerankBody, streams=False))
    async def rerank(request: Request) -> Response:
        """The documents, those first that answer the query best."""
        return await answered(request, RerankBody, "rerank", rerank_request)

    @router.post("/score", include_in_schema=False)
    @router.post("/v1/score", **generation(ScoreBody, streams=False))
    async def score(request: Request) -> Response:
        """How well the texts of each pair go together."""
        return await answered(request, ScoreBody, "score", score_request)

    @router.post("/classify", include_in_schema=False)
    @router.post("/v1/classify", **generation(ClassifyBody, streams=False))
    async def classify(request: Request) -> Response:
        """The label of each input, and the probabilities of all."""
        return await answered(request, ClassifyBody, "classify", classify_request)

    return router
