"""Digests of a tree of arrays, leaf by leaf: what tells that a checkpoint has changed since it was
saved.
"""

import concurrent.futures
import hashlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


def digests(tree: Any) -> dict[str, str]:
    """{path of leaf: sha256 of its type, shape and bytes}; leaves side by side, as hashing lets
    other threads work.
    """

    def whole(leaf: Any) -> Any:
        apart = isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
        return multihost_utils.process_allgather(leaf, tiled=True) if apart else leaf

    def digest(leaf: Any) -> str:
        array = np.ascontiguousarray(leaf)
        hasher = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
        hasher.update(array.view(np.uint8))
        return hasher.hexdigest()

    leaves = {
        jax.tree_util.keystr(path): whole(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(leaves, pool.map(digest, leaves.values()), strict=True))
