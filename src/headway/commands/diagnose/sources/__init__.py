"""Evidence from a journal, a report, stored rows, or a live server."""
