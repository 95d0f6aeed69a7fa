"""Settings of every kind of experiment, as frozen dataclasses with defaults and limits.

Nothing here imports JAX.
"""
