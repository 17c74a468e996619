"""How a server is asked (Wording): its model, the form of prompts, and what it understands."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from headway.runs.remote.target import Target

MARGIN = 0.9  # share of the context to use if prompt lengths are not exact
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Wording:
    """How one server is asked, as found on the first contact."""

    target: Target
    model: str
    chat: bool = False  # /v1/chat/completions in place of /v1/completions
    text: Sequence[int] = field(default=(), repr=False)  # numbers that prompts are cut from
    words: Sequence[str] = field(default=(), repr=False)  # indexed by them; empty: token ids
    words_per_token: float = 1.0
    extras: tuple[str, ...] = ()  # those of ignore_eos and min_tokens that the server takes
    counts: bool = True  # its streams have usage, if stream_options.include_usage asks for it
    context: int = 0  # tokens that a request may have; 0: the server does not say
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # of every request

    @property
    def exact(self) -> bool:
        """Whether prompts are token ids, so that their lengths are exact."""
        return not self.words

    @property
    def path(self) -> str:
        """The path of requests."""
        return CHAT if self.chat else COMPLETIONS

    @property
    def room(self) -> int:
        """Tokens that a request may have, with a margin if lengths are not exact; 0: unknown."""
        return self.context if self.exact else int(self.context * MARGIN)

    def prompt_tokens(self, prompt: Sequence[int]) -> int:
        """About how many tokens a prompt has."""
        return max(1, round(len(prompt) / self.words_per_token))

    def prompt_numbers(self, tokens: int) -> int:
        """How many numbers of `text` make a prompt of about this many tokens."""
        return max(1, round(tokens * self.words_per_token))

    def text_of(self, prompt: Sequence[int]) -> str:
        """The words of a prompt."""
        return " ".join([self.words[at] for at in prompt])

    def body(
        self, prompt: Sequence[int], answer: int, before: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The JSON of a request.

        answer: tokens to ask for. before: the session so far, the caller's and the server's texts
        in turn; only for text prompts.
        """
        said: dict[str, Any] = {"model": self.model}
        text = self.text_of(prompt) if self.words else list(prompt)
        if self.chat:
            roles = zip(cycle(("user", "assistant")), [*before, text], strict=False)
            said["messages"] = [{"role": role, "content": each} for role, each in roles]
        else:
            parts = [f" {each}" if at and at % 2 == 0 else each for at, each in enumerate(before)]
            said["prompt"] = f"{''.join(parts)} {text}" if before else text
        said |= {"max_tokens": answer, "temperature": 0, "stream": True}
        if "ignore_eos" in self.extras:
            said["ignore_eos"] = True
        if "min_tokens" in self.extras:
            said["min_tokens"] = answer
        if self.counts:
            said["stream_options"] = {"include_usage": True}
        return said

    def request(
        self,
        prompt: Sequence[int],
        answer: int,
        headers: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> bytes:
        """The whole HTTP request for a streamed answer."""
        body = json.dumps(self.body(prompt, answer, before), separators=(",", ":")).encode()
        return http_request(
            self.target, "POST", self.path, body, {**self.headers, **(headers or {})}
        )


def http_request(
    target: Target, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> bytes:
    """An HTTP/1.1 request. If two headers differ only in case, the later one counts."""
    named = {"host": target.authority, "accept": "*/*", "user-agent": "headway-bench"}
    if body:
        named |= {"content-type": "application/json", "content-length": str(len(body))}
    named |= {name.lower(): value for name, value in headers.items()}
    lines = [f"{method} {target.prefix}{path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
