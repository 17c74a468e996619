"""Bodies and answers of the vector paths: embeddings, rerank, score, classify."""
