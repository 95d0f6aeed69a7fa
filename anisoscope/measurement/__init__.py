"""Clouds of vectors in, tables out: families of quantities, their intervals, null models, and
sources of clouds.
"""
