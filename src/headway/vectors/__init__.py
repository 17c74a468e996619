"""What becomes of the vectors that an executor makes: embeddings, scores and labels."""
