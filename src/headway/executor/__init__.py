"""Executors: they compute a batch. Tensors stay in here."""

import os

# oneDNN prepares a matrix product for each shape and keeps 1,024 of them. Steps of 1 to 200 tokens
# need more, and it would prepare each step's products again. If all are kept, prompt steps take
# 0.64 of the time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")
