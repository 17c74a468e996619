"""Bodies and answers of the paths that return vectors: embeddings, rerank, score, classify."""
