"""Programs over cones, for Clarabel and for specialised interior points."""
