"""A tiny random reranker that answers yes or no, declared as sentence-transformers 6 writes it."""

import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.executor.torch.tiny_checkpoints import BASE

YES, NO = 17, 23
LOGITS = {"method": "forward", "method_output_name": "logits"}
CHAIN = "sentence_transformers.base.modules.transformer.Transformer", "1_LogitScore"
LOGIT_SCORE = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
TEMPLATE = (
    "{%- for m in messages if m.role == 'system' %}{{ m.content }} {% endfor -%}"
    "{%- for m in messages if m.role == 'query' %}the {{ m.content }}{% endfor -%}"
    "{%- for m in messages if m.role == 'document' %} on {{ m.content }}{% endfor -%}"
    "{%- if add_generation_prompt %} is it{% endif -%}"
)


def make_reranker(folder, family="qwen3", no=NO, **config):
    """The reranker's model, saved with the files that say how its score is computed."""
    made = AutoConfig.for_model(family, **(BASE | config))
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32).eval()
    model.save_pretrained(folder)
    modules = [(0, "", CHAIN[0]), (1, CHAIN[1], LOGIT_SCORE)]
    chain = [{"idx": i, "name": f"{i}", "path": path, "type": kind} for i, path, kind in modules]
    (folder / "modules.json").write_text(json.dumps(chain))
    (folder / CHAIN[1]).mkdir()
    tokens = {"true_token_id": YES, "false_token_id": no, "module_input_name": "causal_logits"}
    (folder / CHAIN[1] / "config.json").write_text(json.dumps(tokens))
    transformer = {
        "transformer_task": "text-generation",
        "modality_config": {"text": LOGITS, "message": {**LOGITS, "format": "flat"}},
        "module_output_name": "causal_logits",
        "processing_kwargs": {"chat_template": {"add_generation_prompt": True}},
    }
    (folder / "sentence_bert_config.json").write_text(json.dumps(transformer))
    card = {
        "model_type": "CrossEncoder",
        "prompts": {"find": "where is it"},
        "default_prompt_name": "find",
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(card))
    return model


def score_by_transformers(model, ids, no=NO):
    """The logit of yes at the last token minus that of no, if there is a no."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, -1]
    return (logits[YES] - (logits[no] if no is not None else 0)).item()
