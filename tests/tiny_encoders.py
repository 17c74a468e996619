"""Tiny random encoders of every family, with a tokenizer, as transformers saves them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "ran",
    "from",
    "rain",
    "in",
    "spain",
    "what",
    "where",
    "who",
    "is",
    "it",
    "of",
    "and",
    "to",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCAB, CONTEXT = 64, 40
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
MORE: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 48, "hidden_dim": 80, "n_layers": 3, "n_heads": 6},
    "modernbert": {
        "local_attention": 8,  # shorter than the texts
        "global_attn_every_n_layers": 2,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    },
    "eurobert": {"num_key_value_heads": 2},
    "gte": {"type_vocab_size": 2},
}


def make_encoder(folder: Path, kind: str, labels: int = 0, **more: Any) -> Path:
    """Save a random encoder of this model_type. labels: of its classification head; 0: none."""
    config = AutoConfig.for_model(kind, **BASE, **MORE.get(kind, {}), **more)
    if labels:
        config.num_labels = labels
    torch.manual_seed(11)
    made = (AutoModelForSequenceClassification if labels else AutoModel).from_config(config)
    folder.mkdir(parents=True, exist_ok=True)
    made.eval().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def tokenizer(typed: bool = False) -> PreTrainedTokenizerFast:
    """Words, one token each, between [CLS] and [SEP]. typed: a second text has a token type."""
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=inputs, **names)


def reference(folder: Path, labels: int = 0) -> Any:
    """transformers' own model, with its own attention."""
    kind = AutoModelForSequenceClassification if labels else AutoModel
    return kind.from_pretrained(folder, attn_implementation="eager").eval()
