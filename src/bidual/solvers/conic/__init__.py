"""Programs over cones, for Clarabel and for interior points made for one form."""
