"""Branch and bound on the sphere, for few dimensions and many samples."""
