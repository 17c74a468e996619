"""`headway ledger`: what is asked of a ledger, and how it is answered."""
