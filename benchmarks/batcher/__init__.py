"""What is batching any function worth, beside the batchers that Python programmers use?"""
