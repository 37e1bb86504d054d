"""Path-regularised parallel networks (PR)."""
