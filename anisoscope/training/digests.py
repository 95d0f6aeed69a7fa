"""Digest the arrays of a checkpoint: each process hashes the parts that its own devices hold."""

import collections
import concurrent.futures
import hashlib
import re
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from anisoscope.utils import processes

SPLIT = re.compile(r"(\d+)/(\d+):[0-9a-f]{64}")


class Split(NamedTuple):
    """How an array is cut into equal parts along an axis."""

    axis: int
    parts: int


WHOLE = Split(0, 1)


def leaf_digests(tree: Any, saved: dict[str, str] | None = None) -> dict[str, str]:
    """Digest a tree of arrays: {path of leaf: sha256 of its type, shape and bytes}.

    A leaf that is split over devices is not gathered: its digest is "axis/parts:" and the sha256 of
    the digests of its parts. With `saved`, leaves are cut as they were when they were saved.
    """
    leaves = {
        jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    splits = {
        path: _find_split(leaf) if saved is None else _read_split(saved.get(path, ""), leaf)
        for path, leaf in leaves.items()
    }
    own = {
        (path, number): part
        for path, leaf in leaves.items()
        for number, part in _cut(leaf, splits[path]).items()
    }
    with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing lets other threads work
        digests = dict(zip(own, pool.map(_digest, own.values()), strict=True))
    if any(_is_spread(leaf) for leaf in leaves.values()):
        digests = _exchange(
            digests, [(path, n) for path in splits for n in range(splits[path].parts)]
        )
    found = {}
    for path, (axis, parts) in splits.items():
        hashes = [digests[path, number] for number in range(parts)]
        joined = hashlib.sha256(b"".join(hashes)).hexdigest()
        found[path] = hashes[0].hex() if parts == 1 else f"{axis}/{parts}:{joined}"
    return found


def match_in_any_order(tree: Any, saved: list[str]) -> bool:
    """Return whether the leaves of a tree have these digests, whatever their paths are."""
    by_split = collections.defaultdict(list)
    for digest in saved:
        by_split[digest.rpartition(":")[0]].append(digest)
    paths = leaf_digests(tree).keys()
    return len(paths) == len(saved) and all(
        collections.Counter(digests)
        <= collections.Counter(leaf_digests(tree, dict.fromkeys(paths, digests[0])).values())
        for digests in by_split.values()
    )


def _digest(part: Any) -> bytes:
    array = np.ascontiguousarray(part)
    hasher = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    hasher.update(array.view(np.uint8))
    return hasher.digest()


def _exchange(
    own: dict[tuple[str, int], bytes], numbers: list[tuple[str, int]]
) -> dict[tuple[str, int], bytes]:
    """Collect the digests of parts that other processes hash; zeros stand for an unknown one."""
    rows = [np.frombuffer(own.get(number, bytes(32)), np.uint8) for number in numbers]
    joined = processes.gather(np.stack(rows)).max(axis=0)
    return {number: row.tobytes() for number, row in zip(numbers, joined, strict=True)}


def _find_split(leaf: Any) -> Split:
    """Find how a leaf is split over devices; along two axes it counts as whole, and is gathered."""
    if isinstance(leaf, jax.Array):
        sizes = zip(leaf.shape, leaf.sharding.shard_shape(leaf.shape), strict=True)
        splits = [Split(i, size // part) for i, (size, part) in enumerate(sizes) if size != part]
        if len(splits) == 1:
            return splits[0]
    return WHOLE


def _read_split(digest: str, leaf: Any) -> Split:
    """Read how a saved leaf was cut; whole where this leaf cannot be."""
    if match := SPLIT.fullmatch(digest):
        split = Split(int(match[1]), int(match[2]))
        shape = np.shape(leaf)
        if split.axis < len(shape) and split.parts and shape[split.axis] % split.parts == 0:
            return split
    return WHOLE


def _is_spread(leaf: Any) -> bool:
    """Return whether this process has only a part of a leaf."""
    if not isinstance(leaf, jax.Array):
        return False
    return not (leaf.is_fully_addressable or leaf.is_fully_replicated)


def _cut(leaf: Any, split: Split) -> dict[int, Any]:
    """Cut a leaf into the parts that this process has, by number."""
    if split != WHOLE and split == _find_split(leaf):
        size = leaf.shape[split.axis] // split.parts
        shards = leaf.addressable_shards
        return {(shard.index[split.axis].start or 0) // size: shard.data for shard in shards}
    if _is_spread(leaf):  # it is split in another way than it was saved
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    elif isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        leaf = leaf.addressable_data(0)
    if split == WHOLE:
        return {0: leaf}
    return dict(enumerate(np.split(np.asarray(leaf), split.parts, split.axis)))
