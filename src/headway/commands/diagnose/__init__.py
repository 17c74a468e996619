"""`headway diagnose`: the likely cause of missed limits, from recorded rows or counters."""
