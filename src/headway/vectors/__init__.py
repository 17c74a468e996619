"""Turn an executor's vectors into embeddings, scores and label probabilities."""
