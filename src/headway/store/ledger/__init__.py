"""The stored ledger: a row for each request, device time by the minute, outcomes and spend.

Needs the extra `jobs`; queries need `ledger`.
"""
