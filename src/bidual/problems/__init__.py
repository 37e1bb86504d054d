"""What is minimised, and what is proved about a point."""
