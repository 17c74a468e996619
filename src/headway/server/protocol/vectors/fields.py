"""The bodies of the paths that embed, rank, score or classify whole prompts."""

from typing import Annotated, Literal

from pydantic import BaseModel, FailFast, Field

from headway.server.protocol.fields import STRICT, Bounded, IdLists, Ids, Positive, Texts

Cut = Literal[-1] | Positive


class VectorBody(BaseModel):
    """The fields that all of them have."""

    model_config = STRICT

    model: str | None = None  # a name or an alias, perhaps with @lane; absent: the key's first one
    truncate_prompt_tokens: Cut | None = None  # keep this many first tokens; -1: all that fit
    service_tier: str | None = None  # names the lane
    user: str | None = None  # accepted but not used: the tenant is the key's


class EmbeddingBody(VectorBody):
    """POST /v1/embeddings."""

    input: str | Texts | Ids | IdLists
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    # absent: the checkpoint's own
    pooling: (
        Literal["last", "mean", "first", "max", "weightedmean", "mean_sqrt_len_tokens"] | None
    ) = None
    prompt_name: str | None = None  # a prompt of the model card; "": none; absent: its default
    normalize: bool | None = None  # absent: as the model card says


class TextDocument(BaseModel):
    """A document as an object."""

    model_config = STRICT

    text: str


class RerankBody(VectorBody):
    """POST /v1/rerank, as Cohere and Jina have it."""

    query: str
    documents: Annotated[
        list[str | Annotated[TextDocument, Bounded]], FailFast(), Field(min_length=1)
    ]
    top_n: Positive | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Positive | None = (
        None  # Cohere's: documents with more tokens are cut to this many
    )


class ScoreBody(VectorBody):
    """POST /v1/score, as vLLM has it: one text with each of several, or pairs."""

    text_1: str | Texts
    text_2: str | Texts


class ClassifyBody(VectorBody):
    """POST /v1/classify."""

    input: str | Texts | Ids | IdLists
