"""Do directions fitted to activations carry the gradient? Activation subspaces, tested at every
checkpoint.
"""
