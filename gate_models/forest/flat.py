"""A forest as flat arrays: the trees of all requests are walked together, level by level, in numpy.

Equal to scikit-learn's prediction: scikit-learn compares float32 features with float64 thresholds, and rounding a
threshold down to float32 changes no such comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor  # two seconds, and none of it is served

ROWS: Final = 32
"""Requests walked at once; more would leave the cache."""
FIRST_CUT: Final = 6
CUT_EVERY: Final = 3
"""Levels at which ended walks are dropped: from `FIRST_CUT` on, every so many."""
_ARRAYS: Final = ("feature", "threshold", "left", "roots", "value")


@dataclass(frozen=True, slots=True)
class FlatForest:
    """Trees by node. A node goes to `left`, or to `left + 1` where its feature exceeds its threshold; a leaf stays."""

    feature: NDArray[np.intp]
    """[nodes]"""
    threshold: NDArray[np.float32]
    """[nodes]; infinite in leaves."""
    left: NDArray[np.intp]
    """[nodes]; itself in leaves."""
    roots: NDArray[np.intp]
    """[trees]"""
    value: NDArray[Any]
    """[nodes, outputs], float64, or float32 as stored in an artifact."""
    depth: int

    @staticmethod
    def of(forest: RandomForestRegressor | RandomForestClassifier) -> FlatForest:
        """Compile a fitted forest. Classifiers must have one output; it becomes one column a class."""
        trees = [_Tree.of(estimator.tree_) for estimator in forest.estimators_]
        offsets = np.cumsum([0, *(tree.feature.size for tree in trees)])
        return FlatForest(
            feature=np.concatenate([tree.feature for tree in trees]),
            threshold=np.concatenate([tree.threshold for tree in trees]),
            left=np.concatenate([tree.left + at for tree, at in zip(trees, offsets, strict=False)]),
            roots=offsets[:-1].astype(np.intp),
            value=np.concatenate([tree.value for tree in trees]),
            depth=max(tree.depth for tree in trees),
        )

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """[n, features] float32 -> [n, outputs]: the mean over trees."""
        parts = [self._walk(features[start : start + ROWS]) for start in range(0, len(features), ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, self.value.shape[1]))

    def _walk(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Tree by tree in memory, so that the rows of a tree share the cache; walks that have ended are dropped."""
        rows, width = features.shape
        flat = np.ascontiguousarray(features, dtype=np.float32).ravel()
        node = np.repeat(self.roots, rows)
        base = np.tile(np.arange(rows, dtype=np.intp) * width, self.roots.size)
        leaf, at = node, np.arange(node.size)
        for level in range(1, self.depth + 1):
            place = self.feature.take(node)
            place += base
            exceeds = flat.take(place) > self.threshold.take(node)
            following = self.left.take(node)
            following += exceeds
            if level < FIRST_CUT or level % CUT_EVERY:
                node = following
                continue
            moved = np.flatnonzero(following != node)
            leaf[at] = following
            at, base, node = at.take(moved), base.take(moved), following.take(moved)
        leaf[at] = node
        leaves = self.value.take(leaf, axis=0).reshape(self.roots.size, rows, -1)
        mean: NDArray[np.float64] = leaves.mean(axis=0, dtype=np.float64)
        return mean

    def rounded(self) -> FlatForest:
        """With single-precision values, as an artifact stores them: what is calibrated is what is served."""
        return replace(self, value=self.value.astype(np.float32))

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Small arrays for an artifact: children as distances from their parents."""
        nodes = np.arange(self.left.size)
        distance = (self.left - nodes).astype(np.uint16 if int((self.left - nodes).max()) < 2**16 else np.int32)
        return {
            f"{prefix}.feature": self.feature.astype(np.int16),
            f"{prefix}.threshold": self.threshold,
            f"{prefix}.left": distance,
            f"{prefix}.roots": self.roots.astype(np.int32),
            f"{prefix}.value": self.value.astype(np.float32)[self.left == nodes],
            f"{prefix}.depth": np.array([self.depth], dtype=np.int32),
        }

    @staticmethod
    def restore(arrays: Mapping[str, NDArray[Any]], prefix: str) -> FlatForest:
        """The forest that `arrays` describe. Raises `KeyError` or `ValueError` where they describe none."""
        feature, threshold, distance, roots, leaves = (arrays[f"{prefix}.{name}"] for name in _ARRAYS)
        fits = feature.shape == threshold.shape == distance.shape and leaves.ndim == 2
        left = np.arange(distance.size) + distance.astype(np.intp)
        is_leaf = distance == 0
        if not fits or is_leaf.sum() != len(leaves) or (left + ~is_leaf).max(initial=0) >= feature.size:
            raise ValueError(f"the arrays of '{prefix}' are no forest")
        value = np.zeros((feature.size, leaves.shape[1]), dtype=np.float32)
        value[is_leaf] = leaves
        depth = int(arrays[f"{prefix}.depth"][0])
        return FlatForest(feature.astype(np.intp), threshold, left, roots.astype(np.intp), value, depth)


@dataclass(frozen=True, slots=True)
class _Tree:
    feature: NDArray[np.intp]
    threshold: NDArray[np.float32]
    left: NDArray[np.intp]
    value: NDArray[np.float64]
    depth: int

    @staticmethod
    def of(tree: Any) -> _Tree:
        """Renumber scikit-learn's nodes breadth first, so that a right child follows its left one."""
        order = np.zeros(tree.node_count, dtype=np.int64)
        left = np.zeros(tree.node_count, dtype=np.intp)
        frontier, at, depth = np.zeros(1, dtype=np.int64), 0, 0
        while frontier.size:
            numbers = np.arange(at, at + frontier.size)
            order[numbers] = frontier
            at += frontier.size
            inner = tree.children_left[frontier] >= 0
            left[numbers] = numbers
            left[numbers[inner]] = at + 2 * np.arange(int(inner.sum()))
            children = np.stack([tree.children_left[frontier[inner]], tree.children_right[frontier[inner]]], 1)
            frontier = children.ravel()
            depth += bool(frontier.size)
        leaf = tree.children_left[order] < 0
        exact = tree.threshold[order]
        threshold = exact.astype(np.float32)
        threshold = np.where(threshold > exact, np.nextafter(threshold, np.float32(-np.inf)), threshold)
        return _Tree(
            feature=np.where(leaf, 0, tree.feature[order]).astype(np.intp),
            threshold=np.where(leaf, np.float32(np.inf), threshold).astype(np.float32),
            left=left,
            value=_values(tree.value[order]),
            depth=depth,
        )


def _values(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """[nodes, outputs] from scikit-learn's [nodes, outputs, classes]: the regression's values, or class shares."""
    classes = counts.shape[2]
    if classes == 1:
        return counts[:, :, 0]
    if counts.shape[1] != 1:
        raise ValueError("a classifier with several outputs is not supported")
    shares = counts[:, 0, :]
    total: NDArray[np.float64] = shares.sum(1, keepdims=True)
    normal: NDArray[np.float64] = shares / np.where(total == 0.0, 1.0, total)
    return normal
