"""One rule for each cause. A rule asks one question of the evidence."""
