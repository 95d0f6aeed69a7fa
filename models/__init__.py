"""Transformers. The shape letters of the whole project, declared once:

B batch, T time (positions), D width, H heads, K head width, F feed-forward width, V vocabulary, N layers,
P points (vectors) of a cloud, E eigenvalues.
"""
