"""The data that outlives the process: files, jobs, their items, and webhooks still to be sent.

Needs the extra `jobs`: pip install 'headway[jobs]'.
"""
