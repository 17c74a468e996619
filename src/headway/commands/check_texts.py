"""What `headway check` asks of a model's texts: their lengths, and the tokenizer."""

from pathlib import Path

from headway.errors import CheckpointError, SettingError
from headway.text.tokenizer import Tokenizer

PROMPT, ANSWER = 512, 128  # tokens by default, unless the context is shorter


def lengths_of(context: int, prompt: int | None, answer: int | None) -> tuple[int, int]:
    """Tokens of a prompt and its answer. SettingError if the context is too short for both."""
    if answer is None:
        answer = min(ANSWER, context // 2 if prompt is None else max(0, context - prompt))
    if prompt is None:
        prompt = min(PROMPT, max(0, context - answer))
    asked = f"{prompt} prompt tokens and {answer} answer tokens"
    if min(prompt, answer) < 0 or not prompt + answer:
        raise SettingError(f"{asked} are no request")
    if prompt + answer > context:
        raise SettingError(f"{asked} are more than the model's context, {context}")
    return prompt, answer


def tokenizer_problem(folder: Path, vocab: int) -> str:
    """Why an LLM would not take the folder's tokenizer; empty if it would. vocab: rows of the
    model's embedding."""
    try:
        Tokenizer(folder, vocab)
    except CheckpointError as error:
        return str(error)
    return ""
