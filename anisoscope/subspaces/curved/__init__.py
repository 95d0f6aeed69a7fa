"""Compare gradients of a linear probe on curved manifolds with closed forms."""
