"""Training problems, and certificates of their points."""
