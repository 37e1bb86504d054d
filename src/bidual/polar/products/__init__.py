"""Upper bounds of the steepest neuron from products of non-negative forms (docs/product_bound.md)."""
