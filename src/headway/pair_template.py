"""How a reranker that answers yes or no is asked about a query and a document (PairTemplate)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import ConfigReader, read_json
from headway.executor.torch.config.modules import read_answer_tokens, read_transformer

QUERY, DOCUMENT, INSTRUCTION = "query", "document", "system"  # roles, as its template names them
# What sentence-transformers keeps beside a template's arguments: it truncates by itself.
NO_ARGUMENTS = "restore_suffix", "padding", "truncation", "max_length", "return_tensors"


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """A pair is a chat of three messages through the checkpoint's chat template.

    The roles are those of sentence-transformers: query and document, and before them a system
    message with the instruction, where there is one.
    """

    instruction: str = ""  # what makes a document relevant; empty: the template has its own
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the template

    def messages(self, query: str, document: str) -> list[tuple[str, str]]:
        """Role and content of each message."""
        pair = [(QUERY, query), (DOCUMENT, document)]
        return [(INSTRUCTION, self.instruction), *pair] if self.instruction else pair


def read_pair_template(folder: Path) -> PairTemplate | None:
    """By the files of sentence-transformers; None: the checkpoint is no such reranker, or has no
    template for pairs.

    Raises CheckpointError.
    """
    if not read_answer_tokens(folder):
        return None
    reader = ConfigReader(read_transformer(folder), str(folder))
    kinds = reader.section("modality_config").raw
    if kinds and "message" not in kinds:
        return None  # the two texts are put together by the tokenizer
    given = reader.section("processing_kwargs").section("chat_template").raw
    arguments = {key: each for key, each in given.items() if key not in NO_ARGUMENTS}
    instruction = ""
    if (path := folder / "config_sentence_transformers.json").is_file():
        reader = ConfigReader(read_json(path), str(path))
        if name := reader.get("default_prompt_name", ""):
            instruction = str(reader.section("prompts").get(name, ""))
    if "tokenize" in arguments:
        raise CheckpointError(f"{folder}: `tokenize` is no argument of a chat template")
    return PairTemplate(instruction, arguments)
