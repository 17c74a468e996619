"""How to ask a yes-or-no reranker about a query and a document (PairTemplate)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import CheckpointError
from headway.executor.torch.config.config_reader import ConfigReader, read_json
from headway.executor.torch.config.modules import read_answer_tokens, read_transformer

QUERY, DOCUMENT, INSTRUCTION = "query", "document", "system"  # roles in the template
# Keys that sentence-transformers keeps beside a template's arguments, for its own truncation.
NO_ARGUMENTS = "restore_suffix", "padding", "truncation", "max_length", "return_tensors"


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """Render a pair as a chat of two or three messages with the checkpoint's chat template.

    The roles are those of sentence-transformers: query and document. If there is an instruction, a
    system message with it comes first.
    """

    instruction: str = ""  # what makes a document relevant; empty: the template's own, if any
    arguments: Mapping[str, Any] = field(default_factory=dict)  # for the template

    def messages(self, query: str, document: str) -> list[tuple[str, str]]:
        """Role and content of each message."""
        pair = [(QUERY, query), (DOCUMENT, document)]
        return [(INSTRUCTION, self.instruction), *pair] if self.instruction else pair


def read_pair_template(folder: Path) -> PairTemplate | None:
    """Read the pair template from sentence-transformers' files. None: the checkpoint is not a
    yes-or-no reranker, or has no template for pairs.

    Raises CheckpointError.
    """
    if not read_answer_tokens(folder):
        return None
    reader = ConfigReader(read_transformer(folder), str(folder))
    kinds = reader.section("modality_config").raw
    if kinds and "message" not in kinds:
        return None  # the tokenizer joins the two texts
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
