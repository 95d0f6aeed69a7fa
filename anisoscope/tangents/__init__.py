"""Do directions fitted to activations carry the gradient? Tangent proxies, tested at every checkpoint."""
