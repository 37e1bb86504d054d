"""Two-layer ReLU networks over all activation patterns."""
