"""The published experiments, one file each: a function that returns the data, and one that draws the figure."""
