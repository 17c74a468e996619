"""The page as HTML: pure functions of a View."""
