"""Gradients of a linear probe on known curved manifolds: what curvature makes of them, beside
closed forms.
"""
