"""The pool of KV blocks, and the blocks of one sequence."""
