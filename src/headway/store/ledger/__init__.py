"""The ledger as it is kept: a row for each request, device time by the minute, outcomes, spend.

Needs the extra `jobs`; to query it, `ledger`.
"""
