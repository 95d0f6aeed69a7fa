"""Transformers. The shape letters of the whole project, declared once:

B batch, T time (positions), D width, H heads, K head width, F feed-forward width, V vocabulary, N layers,
P points (vectors) of a cloud, E eigenvalues.
"""

from models.masks import dependence, visible_keys
from models.transformer import Activations, Model, build, compute_type, count_parameters

__all__ = ["Activations", "Model", "build", "compute_type", "count_parameters", "dependence", "visible_keys"]
