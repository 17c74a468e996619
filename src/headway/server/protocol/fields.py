"""The fields of request bodies, parsed strictly: an unknown field is an error.

Null means absent, as in OpenAI's API. The defaults are in llm/options.py.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, JsonValue
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from headway.core.sampling import SIZE

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
COUNT = 2**31 - 1  # no count in a request is larger
MOST_ENTRIES = 1_024  # per object: a body has about forty fields, a logit_bias one per token


def _bounded(given: Any) -> Any:
    """An object in a list, if it is not too large: each unknown entry would be an error."""
    if isinstance(given, dict) and len(given) > MOST_ENTRIES:
        text = "it has more than {most} entries"
        raise PydanticCustomError("too_many_entries", text, {"most": MOST_ENTRIES})
    return given


Count = Annotated[int, Field(ge=0, le=COUNT)]
Positive = Annotated[int, Field(ge=1, le=COUNT)]
Token = Annotated[int, Field(ge=0, le=COUNT)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bounded = BeforeValidator(_bounded)  # for the objects in a list
# Named types, because a union must hash its members. Lists fail at the first wrong item: one error
# is enough when a million ids are tried as texts.
Ids = TypeAliasType("Ids", Annotated[list[Token], FailFast()])
Texts = TypeAliasType("Texts", Annotated[list[str], FailFast()])
Choices = TypeAliasType("Choices", Annotated[list[str], FailFast(), Field(min_length=1)])
IdLists = TypeAliasType("IdLists", Annotated[list[Ids], FailFast()])

UNSUPPORTED = {  # field -> message; null and the value in NO_CHANGE are accepted
    "tools": "tool calling is not supported: put the tools into the prompt, and use "
    "response_format for the shape of the answer",
    "tool_choice": "tool calling is not supported",
    "parallel_tool_calls": "tool calling is not supported",
    "functions": "function calling is not supported",
    "function_call": "function calling is not supported",
    "best_of": "it is not supported: use n, and choose among the answers",
    "suffix": "filling in the middle is not supported",
    "audio": "audio is not supported",
    "modalities": "only text is supported",
    "prediction": "predicted outputs are not supported",
    "reasoning_effort": "the model does not reason by effort",
    "verbosity": "it is not supported: say in the prompt how long an answer should be",
    "web_search_options": "web search is not supported",
    "store": "nothing is stored",
    "moderation": "nothing is moderated",
    "prompt_cache_options": "prompts are cached as long as there is room, for no stated time",
    "use_beam_search": "beam search is not supported: use n",
    "guided_json": "use structured_outputs",
    "guided_regex": "use structured_outputs",
    "guided_choice": "use structured_outputs",
    "guided_grammar": "use structured_outputs",
    "prompt_logprobs": "use /v1/completions with echo and logprobs",
}
NO_CHANGE: dict[str, JsonValue] = {
    "tools": [],
    "tool_choice": "none",
    "functions": [],
    "function_call": "none",
    "best_of": 1,
    "suffix": "",
    "modalities": ["text"],
    "store": False,
    "use_beam_search": False,
    "reasoning_effort": "none",
    "verbosity": "medium",
}
TOOLS = "tool calling is not supported"
ROLES = {"tool": TOOLS, "function": "function calling is not supported"}  # of messages
CALLS = {"tool_calls": TOOLS, "tool_call_id": TOOLS, "function_call": ROLES["function"]}
PARTS = frozenset({"image_url", "input_audio", "file", "refusal"})  # content parts beside text


class StreamOptions(BaseModel):
    """What a streamed answer carries beside its text."""

    model_config = STRICT

    include_usage: bool | None = None  # one more chunk at the end, without choices
    include_obfuscation: Literal[False] | None = None  # chunks are never padded
    continuous_usage_stats: bool | None = None  # the usage so far on every chunk, as vLLM has it


class JsonSchema(BaseModel):
    """A JSON schema that the answer obeys."""

    model_config = STRICT

    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None  # the schema is always obeyed


class ResponseFormat(BaseModel):
    """The form of the answer: free text, any JSON object, or JSON that obeys a schema."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(BaseModel):
    """vLLM's field; it must have exactly one entry."""

    model_config = STRICT

    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None
    json_object: bool | None = None


class GenerationBody(BaseModel):
    """The fields that chat and completions have in common."""

    model_config = STRICT

    model: str | None = None  # a name or an alias, perhaps with @lane; absent: the key's first one
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Positive | None = None
    max_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=SIZE)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=COUNT)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: str | Texts | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    bad_words: Texts | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=SIZE)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: Positive | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    service_tier: str | None = None  # names the lane
    user: str | None = None  # accepted but not used: the tenant is the key's
    safety_identifier: str | None = None  # accepted but not used
    metadata: dict[str, str] | None = None  # for the rules of routes; nothing is stored
    # Accepted but not used: a tenant's prompts share one in-memory cache, as long as there is room.
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None


class TextPart(BaseModel):
    """A part of a message that is text."""

    model_config = STRICT

    type: Literal["text"]
    text: str


TextParts = TypeAliasType("TextParts", Annotated[list[Annotated[TextPart, Bounded]], FailFast()])


class ChatMessage(BaseModel):
    """One message. Fields of an answer that clients send back are accepted when they are null."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant"]
    content: str | TextParts
    name: str | None = None  # accepted but not used: templates know only roles
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None


Chat = TypeAliasType(
    "Chat", Annotated[list[Annotated[ChatMessage, Bounded]], FailFast(), Field(min_length=1)]
)


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: Chat
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None  # the newer name; it overrides max_tokens
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: str | Texts | Ids | IdLists
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class TokenizeBody(BaseModel):
    """POST /tokenize: a prompt or a chat, exactly one."""

    model_config = STRICT

    model: str | None = None
    prompt: str | None = None
    messages: Chat | None = None


class DetokenizeBody(BaseModel):
    """POST /detokenize."""

    model_config = STRICT

    model: str | None = None
    tokens: Ids
