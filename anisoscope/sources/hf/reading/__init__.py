"""A model reads windows: which positions are measured, what is caught there, and what must be true
of it before.
"""
