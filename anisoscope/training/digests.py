"""Digest the arrays of a checkpoint."""

import concurrent.futures
import hashlib
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def leaf_digests(tree: Any) -> dict[str, str]:
    """Digest a tree of arrays: {path of leaf: sha256 of its type, shape and bytes}.

    All processes call it together: a leaf that is split over them is gathered, one at a time.
    """
    leaves = {
        jax.tree_util.keystr(x): leaf for x, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing lets other threads work
        futures = {path: pool.submit(_digest, x) for path, x in leaves.items() if not _is_spread(x)}
        return {
            path: futures[path].result() if path in futures else _digest(_gather(leaf))
            for path, leaf in leaves.items()
        }


def _is_spread(leaf: Any) -> bool:
    """Return whether this process has only a part of a leaf."""
    whole = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
    return not (whole or leaf.is_fully_replicated)


def _gather(leaf: jax.Array) -> jax.Array:
    everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    copy = jax.jit(lambda x: x, out_shardings=everywhere)(leaf)
    return jax.block_until_ready(copy)  # on all devices: gloo mixes up the messages of two


def _digest(leaf: Any) -> str:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        leaf = leaf.addressable_data(0)
    array = np.ascontiguousarray(leaf)
    hasher = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    hasher.update(array.view(np.uint8))
    return hasher.hexdigest()
