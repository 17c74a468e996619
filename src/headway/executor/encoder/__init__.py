"""Encoders (BERT and its like) as an executor: transformers computes them, without padding."""
