"""Every setting with its default, as frozen dataclasses, and what each may be. Nothing here imports
JAX.
"""
