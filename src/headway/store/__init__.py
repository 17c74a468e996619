"""What outlives the process: files, jobs, their items, and webhooks that are still to be sent.

Needs the extra `jobs`: pip install 'headway[jobs]'.
"""
