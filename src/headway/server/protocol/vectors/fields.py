"""The bodies of the paths that return what a model says of whole prompts."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from headway.server.protocol.fields import STRICT, IdLists, Ids, Positive, Texts

Cut = Literal[-1] | Positive


class VectorBody(BaseModel):
    """The fields that all of them have."""

    model_config = STRICT

    model: str | None = None  # its name or an alias, perhaps with @lane; the only one if absent
    truncate_prompt_tokens: Cut | None = None  # keep so many, at the beginning; -1: all that fit
    service_tier: str | None = None  # names the lane
    user: str | None = None  # taken, and not used: the tenant is the key's


class EmbeddingBody(VectorBody):
    """POST /v1/embeddings."""

    input: str | Texts | Ids | IdLists
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    # absent: the checkpoint's own
    pooling: (
        Literal["last", "mean", "first", "max", "weightedmean", "mean_sqrt_len_tokens"] | None
    ) = None
    prompt_name: str | None = None  # of the model card's; "" for none, absent for its default
    normalize: bool | None = None  # absent: as the model card says


class TextDocument(BaseModel):
    """A document as an object."""

    model_config = STRICT

    text: str


class RerankBody(VectorBody):
    """POST /v1/rerank, as Cohere and Jina have it."""

    query: str
    documents: Annotated[list[str | TextDocument], Field(min_length=1)]
    top_n: Positive | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Positive | None = (
        None  # Cohere's: longer documents are cut, as all must fit
    )


class ScoreBody(VectorBody):
    """POST /v1/score, as vLLM has it: one text with each of several, or pairs."""

    text_1: str | Texts
    text_2: str | Texts


class ClassifyBody(VectorBody):
    """POST /v1/classify."""

    input: str | Texts | Ids | IdLists
