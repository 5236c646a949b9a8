"""Random decision trees, as all three operators write them."""

import numpy as np
from case import Cases, tensor
from onnx import TensorProto, numpy_helper

NUMBERED = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
CLASSES = (TensorProto.INT64, TensorProto.FLOAT)


class Tree:
    """Nodes (mode, feature, value, missing, yes, no), and leaves [(target, weight)...]; the root is node 0."""

    def __init__(self, rng, features, depth, modes, leaf, values):
        self.nodes = []
        self.grow(rng, features, depth, modes, leaf, values)

    def grow(self, rng, features, depth, modes, leaf, values):
        at = len(self.nodes)
        self.nodes.append(None)
        if depth == 0 or (at and rng.random() < 0.2):
            self.nodes[at] = leaf(rng)
            return at
        mode, feature, value = int(rng.choice(modes)), int(rng.integers(features)), float(rng.choice(values))
        yes = self.grow(rng, features, depth - 1, modes, leaf, values)
        no = self.grow(rng, features, depth - 1, modes, leaf, values)
        self.nodes[at] = (mode, feature, value, int(rng.random() < 0.5), yes, no)
        return at

    def unshared(self):
        """The same tree with nodes of its own below each node."""
        tree = Tree.__new__(Tree)
        tree.nodes = []

        def add(node):
            at = len(tree.nodes)
            tree.nodes.append(node)
            if not isinstance(node, list):
                tree.nodes[at] = (*node[:4], add(self.nodes[node[4]]), add(self.nodes[node[5]]))
            return at

        add(self.nodes[0])
        return tree


def numbered(trees, word, missing, shuffled=None):
    """Attributes of the classifier and the regressor."""
    a = {f"nodes_{n}": [] for n in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    a |= {f"{word}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}
    for t, tree in enumerate(trees):
        for i, node in enumerate(tree.nodes):
            is_leaf = isinstance(node, list)
            mode, feature, value, tracks, yes, no = (-1, 0, 0.0, 0, 0, 0) if is_leaf else node
            for name, v in (("treeids", t), ("nodeids", i), ("featureids", feature), ("modes", "LEAF" if is_leaf else NUMBERED[mode]), ("values", value), ("truenodeids", yes),
                            ("falsenodeids", no), ("missing_value_tracks_true", tracks)):
                a[f"nodes_{name}"].append(v)
            for target, weight in node if is_leaf else []:
                for name, v in (("treeids", t), ("nodeids", i), ("ids", target), ("weights", weight)):
                    a[f"{word}_{name}"].append(v)
    if not missing:
        del a["nodes_missing_value_tracks_true"]
    return a


def listed(trees, dtype, missing):
    """Attributes of TreeEnsemble. A tree that is a leaf is a node with twice the same leaf."""
    nodes, leaves, roots, a = [], [], [], {}
    for tree in trees:
        place = {}
        inner = [i for i, node in enumerate(tree.nodes) if not isinstance(node, list)]
        first = len(nodes)
        for k, i in enumerate(inner):
            place[i] = (0, first + k)
        for i, node in enumerate(tree.nodes):
            if isinstance(node, list):
                place[i] = (1, len(leaves))
                leaves.append(node[0])
        roots.append(first)
        for i in inner:
            mode, feature, value, tracks, yes, no = tree.nodes[i]
            nodes.append((mode, feature, value, tracks, *place[yes], *place[no]))
        if not inner:
            nodes.append((0, 0, 0.0, 0, *place[0], *place[0]))
    columns = list(zip(*nodes))
    a["nodes_modes"] = tensor("m", np.array(columns[0], np.uint8))
    a["nodes_featureids"] = list(columns[1])
    a["nodes_splits"] = tensor("s", np.array(columns[2], dtype))
    if missing:
        a["nodes_missing_value_tracks_true"] = list(columns[3])
    a["nodes_trueleafs"], a["nodes_truenodeids"], a["nodes_falseleafs"], a["nodes_falsenodeids"] = (list(c) for c in columns[4:])
    a["leaf_targetids"] = [t for t, _ in leaves]
    a["leaf_weights"] = tensor("w", np.array([w for _, w in leaves], dtype))
    a["tree_roots"] = roots
    return a


def leaf_of(targets, count=1, low=-1.0, high=1.0):
    def leaf(rng):
        chosen = sorted(int(t) for t in rng.choice(targets, size=min(count, len(targets)), replace=False))
        return [(t, float(np.float32(rng.uniform(low, high)))) for t in chosen]

    return leaf


class Maker:
    def __init__(self, c):
        self.c, self.rng = c, c.rng

    def rows(self, n, features, values, dtype=np.float32, missing=False):
        """Numbers near the thresholds, some on them."""
        x = self.rng.choice(values, (n, features)) + self.rng.choice([0.0, 0.0, 0.25, -0.25], (n, features))
        if missing:
            x[self.rng.random(x.shape) < 0.2] = np.nan
        return x.astype(dtype)

    def trees(self, count, features, leaf, depth=4, modes=(0,), values=None):
        return [Tree(self.rng, features, int(self.rng.integers(depth + 1)), modes, leaf, values) for _ in range(count)]

    def values(self):
        return [float(np.float32(v)) for v in self.rng.normal(size=7)]


def regressors(m):
    for variant, modes, missing, targets, count, aggregate, post, base, dtype in (
        ("plain", (0,), False, 1, 1, "SUM", "NONE", 0, np.float32),
        ("base", (0,), False, 1, 1, "SUM", "NONE", 1, np.float32),
        ("modes", (0, 1, 2, 3, 4, 5), False, 1, 1, "SUM", "NONE", 0, np.float32),
        ("missing", (0, 1, 2, 3, 4), True, 1, 1, "SUM", "NONE", 0, np.float32),
        ("double", (0, 1, 2, 3), True, 1, 1, "SUM", "NONE", 0, np.float64),
        ("logistic_of_one", (0,), False, 1, 1, "SUM", "LOGISTIC", 0, np.float32),
        ("targets", (0,), False, 3, 3, "SUM", "NONE", 3, np.float32),
        ("single_targets", (0,), False, 3, 1, "SUM", "NONE", 0, np.float32),
        ("average", (0,), False, 2, 2, "AVERAGE", "NONE", 2, np.float32),
        ("min", (0,), False, 2, 1, "MIN", "NONE", 0, np.float32),
        ("max", (0,), False, 2, 2, "MAX", "NONE", 2, np.float32),
        ("min_of_one", (0,), False, 1, 1, "MIN", "NONE", 1, np.float32),
        ("softmax", (0,), False, 3, 3, "SUM", "SOFTMAX", 0, np.float32),
        ("softmax_zero", (0,), False, 3, 3, "SUM", "SOFTMAX_ZERO", 0, np.float32),
        ("logistic", (0,), False, 3, 3, "SUM", "LOGISTIC", 3, np.float32),
    ):
        values = m.values()
        trees = m.trees(9, 5, leaf_of(range(targets), count), modes=modes, values=values)
        x = m.rows(21, 5, values, dtype, missing)
        extra = {"base_values": m.c.floats(base)} if base else {}
        m.c.add("TreeEnsembleRegressor", variant, [x], opset=1, n_targets=targets, aggregate_function=aggregate, post_transform=post, **numbered(trees, "target", missing), **extra)
    # Probabilities, for PROBIT.
    values = m.values()
    trees = m.trees(4, 5, leaf_of([0], 1, 0.02, 0.22), values=values)
    m.c.add("TreeEnsembleRegressor", "probit", [m.rows(8, 5, values)], n_targets=1, post_transform="PROBIT", rtol=1e-3, **numbered(trees, "target", False))
    # Tensors of doubles in place of lists.
    a = numbered(m.trees(6, 5, leaf_of([0]), values=values), "target", False)
    for name in ("nodes_values", "target_weights"):
        a[name + "_as_tensor"] = tensor(name, np.array(a.pop(name), np.float64))
    a["base_values_as_tensor"] = tensor("b", np.array([0.5]))
    m.c.add("TreeEnsembleRegressor", "tensors", [m.rows(8, 5, values, np.float64)], n_targets=1, **a)
    # Integers, which onnxruntime does not take.
    trees = m.trees(6, 5, leaf_of([0]), values=[-1.5, -1.0, 0.0, 1.0, 2.0])
    x = m.rng.integers(-3, 4, (8, 5))
    a = numbered(trees, "target", False)
    like = Cases(0)
    like.add("TreeEnsembleRegressor", "", [x.astype(np.float32)], n_targets=1, **a)
    for dtype in (np.int64, np.int32):
        m.c.add("TreeEnsembleRegressor", np.dtype(dtype).name, [x.astype(dtype)], want=like.all[0].outputs.values(), n_targets=1, **a)
    # Targets of which no tree says anything, where each tree has one.
    for aggregate in ("SUM", "AVERAGE", "MAX"):
        trees = m.trees(5, 5, leaf_of([3]), values=values) + m.trees(4, 5, leaf_of([1]), values=values)
        m.c.add("TreeEnsembleRegressor", f"absent_targets_{aggregate.lower()}", [m.rows(8, 5, values)], opset=1, n_targets=5, aggregate_function=aggregate,
                **numbered(trees, "target", False))
    # Nodes that several lead to: the same as if each had its own.
    for dtype in (np.float32, np.float64):
        shared = Tree(m.rng, 5, 3, (0, 2), leaf_of([0]), values)
        first = len(shared.nodes)
        shared.nodes += [(0, 1, values[0], 0, 0, first + 1), (0, 2, values[1], 0, first + 2, 0), [(0, 0.5)], (0, 3, values[2], 0, first, first + 2)]
        shared.nodes = [shared.nodes[-1], *shared.nodes[:-1]]  # the root is the first
        shared.nodes = [node if isinstance(node, list) else (*node[:4], node[4] + 1, node[5] + 1) for node in shared.nodes]
        x = m.rows(40, 5, values)
        like = Cases(0)
        like.add("TreeEnsembleRegressor", "", [x], n_targets=1, **numbered([shared.unshared()], "target", False))
        a = numbered([shared], "target", False)
        m.c.add("TreeEnsembleRegressor", f"shared_nodes_{np.dtype(dtype).name}", [x.astype(dtype)], want=like.all[0].outputs.values(), n_targets=1, **a)
    # Few rows, and many: vectors of trees, and of rows.
    trees = m.trees(50, 5, leaf_of([0]), depth=7, values=values)
    x = m.rows(1, 5, values)
    m.c.add("TreeEnsembleRegressor", "row", [x], n_targets=1, **numbered(trees, "target", False))
    m.c.add("TreeEnsembleRegressor", "many_rows", [m.rows(300, 5, values)], n_targets=1, **numbered(trees, "target", False))


def classifiers(m):
    for variant, classes, targets, count, low, post, base in (
        ("three", 3, (0, 1, 2), 3, 0.0, "NONE", 0),
        ("boosted", 3, (0, 1, 2), 1, -1.0, "NONE", 3),
        ("softmax", 4, (0, 1, 2, 3), 4, -1.0, "SOFTMAX", 4),
        ("logistic", 3, (0, 1, 2), 3, -1.0, "LOGISTIC", 3),
        ("softmax_zero", 3, (0, 1, 2), 3, -1.0, "SOFTMAX_ZERO", 0),
        ("absent_class", 3, (0, 2), 2, -1.0, "NONE", 0),
        ("binary", 2, (0,), 1, -1.0, "NONE", 0),
        ("binary_base", 2, (0,), 1, -1.0, "NONE", 1),
        ("binary_bases", 2, (0,), 1, -1.0, "NONE", 2),
        ("binary_logistic", 2, (0,), 1, -1.0, "LOGISTIC", 1),
        ("binary_positive", 2, (0,), 1, 0.0, "NONE", 0),
        ("binary_positive_logistic", 2, (0,), 1, 0.0, "LOGISTIC", 0),
        ("binary_softmax", 2, (0,), 1, -1.0, "SOFTMAX", 0),
        ("binary_second", 2, (1,), 1, -1.0, "NONE", 0),
        ("binary_second_logistic", 2, (1,), 1, -1.0, "LOGISTIC", 0),
        ("one", 1, (0,), 1, -1.0, "NONE", 1),
    ):
        values = m.values()
        trees = m.trees(8, 4, leaf_of(targets, count, low, 0.3 if low == 0.0 else 1.0), modes=(0, 1), values=values)
        x = m.rows(23, 4, values)
        extra = {"base_values": m.c.floats(base)} if base else {}
        labels = [7, -3, 12, 40][:classes]
        m.c.add("TreeEnsembleClassifier", variant, [x], CLASSES, 1, post_transform=post, classlabels_int64s=labels, **numbered(trees, "class", False), **extra)
    # Weights of both of two classes: onnxruntime's labels are none of the model's then.
    values = m.values()
    a = numbered(m.trees(8, 4, leaf_of((0, 1), 2, 0.0, 0.1), values=values), "class", False)
    x = m.rows(23, 4, values)
    like = Cases(0)
    like.add("TreeEnsembleClassifier", "", [x], CLASSES, classlabels_int64s=[5, 9], **a)
    scores = like.all[0].outputs["y1"]
    m.c.add("TreeEnsembleClassifier", "both", [x], CLASSES, want=[np.array([5, 9])[scores.argmax(axis=1)], scores], classlabels_int64s=[5, 9], **a)
    for dtype in (np.float64, np.int64, np.int32):
        trees = m.trees(8, 4, leaf_of((0, 1, 2), 3), modes=(0, 1, 2, 3), values=[-2.0, -0.5, 0.0, 1.0])
        x = m.rng.integers(-3, 4, (8, 4)).astype(dtype)
        m.c.add("TreeEnsembleClassifier", np.dtype(dtype).name, [x], CLASSES, classlabels_int64s=[0, 1, 2], **numbered(trees, "class", False))


def ensembles(m):
    for variant, modes, missing, targets, aggregate, post, dtype in (
        ("plain", (0,), False, 1, 1, 0, np.float32),
        ("double", (0, 1, 2, 3), True, 1, 1, 0, np.float64),
        ("modes", (0, 1, 2, 3, 4, 5), False, 2, 1, 0, np.float32),
        ("missing", (0, 1, 2, 3), True, 1, 1, 0, np.float32),
        ("average", (0,), False, 2, 0, 0, np.float32),
        ("min", (0,), False, 1, 2, 0, np.float32),
        ("max", (0,), False, 1, 3, 0, np.float32),
        ("softmax", (0,), False, 3, 1, 2, np.float32),
        ("logistic", (0,), False, 2, 1, 1, np.float32),
    ):
        values = m.values()
        trees = m.trees(9, 5, leaf_of(range(targets)), modes=modes, values=values)
        type_ = TensorProto.DOUBLE if dtype == np.float64 else TensorProto.FLOAT
        a = listed(trees, dtype, missing) | {"n_targets": targets, "aggregate_function": aggregate}
        x = m.rows(21, 5, values, dtype, missing)
        if post == 0:
            m.c.add("TreeEnsemble", variant, [x], (type_,), 5, **a)
            continue
        # ONNX's 1 and 2 are SOFTMAX and LOGISTIC; onnxruntime takes them the other way round.
        like = Cases(0)
        like.add("TreeEnsemble", "", [x], (type_,), 5, post_transform=post, **a)
        m.c.add("TreeEnsemble", variant, [x], (type_,), 5, want=like.all[0].outputs.values(), post_transform=3 - post, **a)
    # Halves, which onnxruntime does not take.
    values = [-2.0, -0.5, 0.0, 0.75]
    trees = m.trees(5, 5, leaf_of([0]), modes=(0, 1, 2, 3, 4, 5), values=values)
    x = m.rows(9, 5, values, np.float16)
    half = listed(trees, np.float16, False)
    like = Cases(0)
    rounded = numpy_helper.to_array(half["leaf_weights"]).astype(np.float32)
    like.add("TreeEnsemble", "", [x.astype(np.float32)], (TensorProto.FLOAT,), 5, n_targets=1, **(listed(trees, np.float32, False) | {"leaf_weights": tensor("w", rounded)}))
    m.c.add("TreeEnsemble", "half", [x], (TensorProto.FLOAT16,), 5, want=[like.all[0].outputs["y0"].astype(np.float16)], rtol=2e-3, atol=2e-3, n_targets=1, **half)
    # Members of sets, with missing values that go either way.
    for missing in (False, True):
        nodes = 40
        modes = m.rng.choice([0, 6], nodes)
        sets = [m.rng.choice([-2, -1, 0, 1, 2, 3], size=int(m.rng.integers(1, 5)), replace=False) for _ in range(int((modes == 6).sum()))]
        leaves = 9
        last = m.rng.random(nodes) < 0.3
        # A chain in which every node may go to a leaf; later nodes may be below several.
        goes = np.minimum(np.arange(nodes)[:, None] + m.rng.integers(1, 4, (nodes, 2)), nodes - 1)
        is_leaf = (m.rng.random((nodes, 2)) < 0.4) | last[:, None]
        is_leaf[-1] = True
        ids = np.where(is_leaf, m.rng.integers(leaves, size=(nodes, 2)), goes)
        a = dict(nodes_modes=tensor("m", modes.astype(np.uint8)), nodes_featureids=[int(v) for v in m.rng.integers(3, size=nodes)],
                 nodes_splits=tensor("s", m.rng.choice([-1.5, 0.0, 1.0], nodes).astype(np.float32)), nodes_trueleafs=is_leaf[:, 0].astype(int).tolist(), nodes_truenodeids=ids[:, 0].tolist(),
                 nodes_falseleafs=is_leaf[:, 1].astype(int).tolist(), nodes_falsenodeids=ids[:, 1].tolist(), leaf_targetids=[0] * leaves,
                 leaf_weights=tensor("w", m.c.real(leaves)), tree_roots=[0],
                 membership_values=tensor("v", np.concatenate([np.append(s, np.nan) for s in sets]).astype(np.float32)))
        if missing:
            a["nodes_missing_value_tracks_true"] = m.rng.integers(2, size=nodes).tolist()
        x = m.rng.integers(-3, 5, (40, 3)).astype(np.float32)
        if missing:
            x[m.rng.random(x.shape) < 0.3] = np.nan
        m.c.add("TreeEnsemble", "members_missing" if missing else "members", [x], (TensorProto.FLOAT,), 5, want=[walk(a, x, sets, missing)], n_targets=1, **a)


def walk(a, x, sets, missing):
    """One tree with sets, by its definition."""
    modes, splits, weights = (numpy_helper.to_array(a[n]) for n in ("nodes_modes", "nodes_splits", "leaf_weights"))
    order = np.cumsum(modes == 6) - 1
    result = []
    for row in x:
        at, done = 0, False
        while not done:
            v = row[a["nodes_featureids"][at]]
            yes = v <= splits[at] if modes[at] == 0 else v in sets[order[at]]
            yes = yes or bool(missing and np.isnan(v) and a["nodes_missing_value_tracks_true"][at])
            word = "true" if yes else "false"
            at, done = a[f"nodes_{word}nodeids"][at], a[f"nodes_{word}leafs"][at]
        result.append([weights[at]])
    return np.array(result, np.float32)


def cases(seed):
    c = Cases(seed)
    m = Maker(c)
    regressors(m)
    classifiers(m)
    ensembles(m)
    return c.all
