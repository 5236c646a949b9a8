"""Models as scikit-learn's converter writes them: columns of categories and of numbers, encoded, put together, and given to trees."""

import numpy as np
from case import DOMAIN, Cases, tensor
from onnx import TensorProto, helper
from trees import Maker, leaf_of, numbered

CITIES, COLOURS, SPECIES = ["Basel", "Zürich", "", "New York"], ["red", "green"], ["setosa", "versicolor", "virginica"]


def pipeline(c, variant, open_rows):
    m = Maker(c)
    rows = 17
    inputs = {"city": m.rng.choice([*CITIES, "Nowhere"], (rows, 1)).astype(object), "colour": m.rng.choice([*COLOURS, "blue"], (rows, 1)).astype(object), "numbers": c.real(rows, 3)}
    features = len(CITIES) + len(COLOURS) + 3
    trees = m.trees(12, features, leaf_of(range(3), 3), values=[-0.5, 0.0, 0.5])
    ml = lambda op, i, o, **a: helper.make_node(op, i, o, domain=DOMAIN, **a)
    nodes = [
        ml("OneHotEncoder", ["city"], ["city_hot"], cats_strings=CITIES, zeros=1),
        ml("OneHotEncoder", ["colour"], ["colour_hot"], cats_strings=COLOURS, zeros=1),
        helper.make_node("Flatten", ["city_hot"], ["city_row"]),
        helper.make_node("Flatten", ["colour_hot"], ["colour_row"]),
        ml("Scaler", ["numbers"], ["scaled"], offset=[0.1, 0.2, 0.3], scale=[2.0, 3.0, 4.0]),
        helper.make_node("Concat", ["city_row", "colour_row", "scaled"], ["x"], axis=1),
        ml("TreeEnsembleClassifier", ["x"], ["label", "probability"], classlabels_strings=SPECIES, post_transform="NONE", **numbered(trees, "class", False)),
    ]
    c.model(f"Pipeline-{variant}", nodes, inputs, {"label": TensorProto.STRING, "probability": TensorProto.FLOAT}, open_rows=open_rows)


# The best class of each row, by its place in the list of classes.
def labels(c, variant, classes, element, open_rows):
    nodes = [
        helper.make_node("ArgMax", ["scores"], ["place"], axis=1, keepdims=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "place"], ["column"], domain=DOMAIN),
        helper.make_node("Reshape", ["column", "flat"], ["label"]),
    ]
    c.model(f"Labels-{variant}", nodes, {"scores": c.real(7, 3)}, {"label": element}, initializers=[tensor("classes", classes), tensor("flat", np.array([-1]))], open_rows=open_rows)


def cases(seed):
    c = Cases(seed)
    for variant, open_rows in (("fixed", False), ("open", True)):
        labels(c, f"numbers_{variant}", np.array([4, 1, 7]), TensorProto.INT64, open_rows)
        labels(c, f"words_{variant}", np.array([b"setosa", b"versicolor", b"virginica"], object), TensorProto.STRING, open_rows)
    pipeline(c, "fixed", False)
    pipeline(c, "open", True)
    return c.all
