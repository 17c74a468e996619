"""`headway diagnose`: the likely cause of what hurts, from rows alone."""
