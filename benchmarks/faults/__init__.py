"""Does `headway diagnose` name a planted fault? See __main__."""
