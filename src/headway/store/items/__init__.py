"""Items of jobs: the requests to send, which are taken next, and their results."""
