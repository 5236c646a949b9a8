"""Linear models, support vector machines, and what makes features and labels."""

import numpy as np
from case import Cases, tensor
from onnx import TensorProto

CLASSES = (TensorProto.INT64, TensorProto.FLOAT)
LINE = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}  # onnxruntime wants it said
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def linear(c):
    x = c.real(11, 6)
    for post in TRANSFORMS:
        c.add("LinearRegressor", f"{post.lower()}", [x], coefficients=c.floats(18), intercepts=c.floats(3), targets=3, post_transform=post)
        c.add("LinearClassifier", f"{post.lower()}", [x], CLASSES, coefficients=c.floats(18), intercepts=c.floats(3), classlabels_ints=[4, 9, -1], post_transform=post)
        c.add("LinearClassifier", f"binary_{post.lower()}", [x], CLASSES, coefficients=c.floats(6), intercepts=c.floats(1), classlabels_ints=[4, 9], post_transform=post)
    c.add("LinearRegressor", "one", [x], coefficients=c.floats(6), intercepts=c.floats(1))
    c.add("LinearRegressor", "no_intercepts", [x], coefficients=c.floats(6))
    c.add("LinearRegressor", "probit", [c.real(5, 2, low=0.1, high=0.4)], rtol=1e-3, coefficients=[0.5, 1.0], post_transform="PROBIT")
    c.add("LinearClassifier", "spare_coefficients", [x], CLASSES, coefficients=c.floats(36), intercepts=c.floats(3), classlabels_ints=[4, 9, -1])
    for dtype in (np.float64, np.int64, np.int32):
        x = c.rng.integers(-4, 5, (7, 6)).astype(dtype)
        c.add("LinearClassifier", np.dtype(dtype).name, [x], CLASSES, coefficients=c.floats(18), intercepts=c.floats(3), classlabels_ints=[0, 1, 2])
    weights = c.floats(6)
    want = x.astype(np.float64) @ np.array(weights)[:, None]
    for dtype in (np.float64, np.int64, np.int32):
        c.add("LinearRegressor", np.dtype(dtype).name, [x.astype(dtype)], want=[want.astype(np.float32)], coefficients=weights)


def vector_machines(c):
    x = c.real(13, 4)
    kernels = (("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 0.25, 3.0]), ("RBF", [0.7, 0.0, 0.0]), ("SIGMOID", [0.3, 0.1, 0.0]))
    for kernel, parameters in kernels:
        shared = {"kernel_type": kernel, "kernel_params": parameters}
        c.add("SVMRegressor", kernel.lower(), [x], n_supports=9, support_vectors=c.floats(36), coefficients=c.floats(9), rho=c.floats(1), **shared)
        c.add("SVMRegressor", f"one_class_{kernel.lower()}", [x], n_supports=9, support_vectors=c.floats(36), coefficients=c.floats(9), rho=c.floats(1), one_class=1, **shared)
        for classes in (2, 3, 4):
            vectors = [3, 2, 4, 3][:classes]
            pairs = classes * (classes - 1) // 2
            a = dict(vectors_per_class=vectors, support_vectors=c.floats(4 * sum(vectors)), coefficients=c.floats((classes - 1) * sum(vectors)), rho=c.floats(pairs),
                     classlabels_ints=[5, 3, 11, 2][:classes])
            c.add("SVMClassifier", f"{kernel.lower()}_{classes}", [x], CLASSES, **a, **shared)
            c.add("SVMClassifier", f"probabilities_{kernel.lower()}_{classes}", [x], CLASSES, rtol=1e-3, prob_a=c.floats(pairs, -2, -1), prob_b=c.floats(pairs), **a, **shared)
    for post in TRANSFORMS[1:]:
        for classes in (2, 3):
            a = dict(vectors_per_class=[2] * classes, support_vectors=c.floats(8 * classes), coefficients=c.floats((classes - 1) * 2 * classes),
                     rho=c.floats(classes * (classes - 1) // 2), classlabels_ints=list(range(classes)))
            c.add("SVMClassifier", f"{post.lower()}_{classes}", [x], CLASSES, post_transform=post, **LINE, **a)
    c.add("SVMRegressor", "no_vectors", [x], coefficients=c.floats(4), rho=c.floats(1), **LINE)
    c.add("SVMClassifier", "no_vectors", [x], CLASSES, coefficients=c.floats(12), rho=c.floats(1), classlabels_ints=[5, 6, 7], **LINE)
    c.add("SVMClassifier", "no_vectors_softmax", [x], CLASSES, coefficients=c.floats(12), rho=c.floats(1), classlabels_ints=[5, 6, 7], **LINE, post_transform="SOFTMAX")
    whole = c.rng.integers(-3, 4, (13, 4))
    for dtype in (np.float64, np.int64, np.int32):
        a = dict(vectors_per_class=[3, 2], support_vectors=c.floats(20), coefficients=c.floats(5), rho=c.floats(1), classlabels_ints=[0, 1])
        c.add("SVMClassifier", np.dtype(dtype).name, [whole.astype(dtype)], CLASSES, **a, **LINE)


def features(c):
    x, whole = c.real(5, 4, low=-3, high=3), c.rng.integers(-3, 4, (5, 4))
    types = (np.float32, np.float64, np.int64, np.int32)
    for dtype in types:
        name, data = np.dtype(dtype).name, whole.astype(dtype)
        c.add("Scaler", name, [data], offset=c.floats(4), scale=c.floats(4))
        for norm in ("MAX", "L1", "L2"):
            c.add("Normalizer", f"{norm.lower()}_{name}", [np.vstack([data, np.zeros((1, 4), dtype)])], norm=norm)
        threshold = 0.5
        c.add("Binarizer", name, [data], (TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())),),
              want=[(data > threshold).astype(dtype)], threshold=threshold)
        # onnxruntime has no kernel for int32.
        want = [np.stack([data == k for k in (-1, 0, 2)], axis=-1).astype(np.float32)]
        c.add("OneHotEncoder", name, [data], want=want, cats_int64s=[-1, 0, 2])
        c.add("FeatureVectorizer", name, [data, data[:, :3], data[:, 1:]], want=[np.hstack([data, data[:, :2], data[:, 1:], np.zeros((5, 2))]).astype(np.float32)],
              inputdimensions=[4, 2, 5])
        c.add("ArrayFeatureExtractor", name, [data, np.array([3, 0, 3])], (TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())),))
    c.add("Scaler", "one_for_all", [x], offset=[0.5], scale=[2.0])
    c.add("Scaler", "row", [x[0]], offset=c.floats(4), scale=c.floats(4))
    c.add("Normalizer", "row", [x[0]], norm="L2")
    c.add("ArrayFeatureExtractor", "row", [x[0], np.array([1, 2])])
    c.add("ArrayFeatureExtractor", "matrix_of_places", [x, np.array([[1, 2]])])
    c.add("ArrayFeatureExtractor", "three_dimensions", [c.real(2, 3, 4), np.array([0, 3])])
    c.add("OneHotEncoder", "list", [np.array([2, 0, 7])], want=[np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)], cats_int64s=[-1, 0, 2])
    c.add("FeatureVectorizer", "one", [x], inputdimensions=[4])
    holes = np.where(c.rng.random((5, 4)) < 0.4, np.nan, x).astype(np.float32)
    c.add("Imputer", "nan", [holes], imputed_value_floats=c.floats(4), replaced_value_float=float("nan"))
    c.add("Imputer", "one_for_all", [holes], imputed_value_floats=[3.5], replaced_value_float=float("nan"))
    c.add("Imputer", "zero", [whole.astype(np.float32)], imputed_value_floats=c.floats(4))
    c.add("Imputer", "int64", [whole], (TensorProto.INT64,), imputed_value_int64s=[5, 6, 7, 8], replaced_value_int64=1)
    c.add("Imputer", "int32", [whole.astype(np.int32)], (TensorProto.INT32,), want=[np.where(whole == 1, [5, 6, 7, 8], whole).astype(np.int32)], imputed_value_int64s=[5, 6, 7, 8],
          replaced_value_int64=1)
    c.add("Imputer", "double", [holes.astype(np.float64)], (TensorProto.DOUBLE,), want=[np.where(np.isnan(holes), 1.5, holes.astype(np.float64))], imputed_value_floats=[1.5],
          replaced_value_float=float("nan"))


def labels(c):
    keys, x = [4, -2, 9, 4], np.array([[4, 1], [9, -2]])
    c.add("LabelEncoder", "int_int", [x], (TensorProto.INT64,), 2, keys_int64s=keys, values_int64s=[1, 2, 3, 7], default_int64=-5)
    c.add("LabelEncoder", "int_float", [x], (TensorProto.FLOAT,), 2, keys_int64s=keys, values_floats=[0.5, 1.5, 2.5, 9.0], default_float=-0.25)
    c.add("LabelEncoder", "float_int", [x.astype(np.float32)], (TensorProto.INT64,), 2, keys_floats=[4.0, -2.0], values_int64s=[1, 2])
    c.add("LabelEncoder", "float_float", [x.astype(np.float32)], (TensorProto.FLOAT,), 2, keys_floats=[4.0, -2.0], values_floats=[1.0, 2.0])
    c.add("LabelEncoder", "opset_4", [x], (TensorProto.INT64,), 4, keys_int64s=keys, values_int64s=[1, 2, 3, 7])
    c.add("LabelEncoder", "nan_key", [np.array([1.0, np.nan, 3.0], np.float32)], (TensorProto.INT64,), 4, keys_floats=[float("nan"), 1.0], values_int64s=[8, 9])
    c.add("LabelEncoder", "tensors", [np.array([1.0, 7.0, 3.0])], (TensorProto.DOUBLE,), 4, keys_tensor=tensor("k", np.array([1.0, 3.0])), values_tensor=tensor("v", np.array([0.1, 0.3])),
          default_tensor=tensor("d", np.array([-1.0])))
    c.add("LabelEncoder", "short_tensors", [np.array([1, 7, 3], np.int64)], (TensorProto.INT16,), 4, want=[np.array([10, -4, 30], np.int16)], keys_tensor=tensor("k", np.array([1, 3])),
          values_tensor=tensor("v", np.array([10, 30], np.int16)), default_tensor=tensor("d", np.array([-4], np.int16)))


def words(c):
    """Labels that are strings; maps come as their scores."""
    x = c.real(11, 6)
    names = ["c", "a", "b"]
    for op, variant, count, a in (
        ("LinearClassifier", "words", 3, dict(coefficients=c.floats(18), intercepts=c.floats(3))),
        ("LinearClassifier", "two_words", 2, dict(coefficients=c.floats(6), intercepts=c.floats(1))),
        ("SVMClassifier", "words", 3, dict(vectors_per_class=[2, 2, 2], support_vectors=c.floats(36), coefficients=c.floats(12), rho=c.floats(3), **LINE)),
    ):
        word = (TensorProto.STRING, TensorProto.FLOAT)
        attributes = dict(classlabels_strings=names[:count], **a)
        c.add(op, variant, [x], word, **attributes)
    keys, y = [4, -2, 9], np.array([[4, 1], [9, -2]])
    c.add("LabelEncoder", "int_word", [y], (TensorProto.STRING,), 2, keys_int64s=keys, values_strings=names, default_string="none")
    text = [["c", "b"], ["", "x"]]
    c.add("LabelEncoder", "word_int", [text], (TensorProto.INT64,), 2, keys_strings=names, values_int64s=[5, 6, 7], default_int64=-3)
    c.add("LabelEncoder", "word_float", [text], (TensorProto.FLOAT,), 2, keys_strings=names, values_floats=[5.0, 6.5, 7.25])
    c.add("LabelEncoder", "word_word", [text], (TensorProto.STRING,), 2, keys_strings=[*names, ""], values_strings=["C", "ä", "", "empty"])
    c.add("LabelEncoder", "word_tensors", [text], (TensorProto.STRING,), 4, keys_tensor=tensor("k", np.array(names, object)), values_tensor=tensor("v", np.array(["x", "y", "z"], object)),
          default_tensor=tensor("d", np.array(["?"], object)))
    c.add("LabelEncoder", "float_word", [np.array([1.5, 2.0], np.float32)], (TensorProto.STRING,), 2, keys_floats=[2.0], values_strings=["two"])
    c.add("CategoryMapper", "to_int", [text], (TensorProto.INT64,), 1, cats_strings=names, cats_int64s=[3, 1, 2], default_int64=9)
    c.add("CategoryMapper", "to_word", [np.array([3, 1, 4])], (TensorProto.STRING,), 1, cats_strings=names, cats_int64s=[3, 1, 2], default_string="other")
    c.add("OneHotEncoder", "words", [text], cats_strings=names, zeros=1)
    c.add("ArrayFeatureExtractor", "words", [text, np.array([1, 0, 1])], (TensorProto.STRING,), 1)
    c.maps("ints", c.real(4, 3), classlabels_int64s=[3, 1, 2])
    c.maps("words", c.real(4, 3), classlabels_strings=names)
    c.maps("row", c.real(3), classlabels_strings=names)
    c.maps("open", c.real(4, 3), open_rows=True, classlabels_strings=names)


def texts(c):
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 3, 4, 3, 4, 5]
    x = c.rng.integers(2, 9, (4, 12))
    shared = dict(domain="", ngram_counts=[0, 4, 10], pool_int64s=pool, ngram_indexes=[0, 3, 2, 1, 5, 4, 6, 8, 7])
    for mode in ("TF", "IDF", "TFIDF"):
        for weights in ({}, {"weights": c.floats(9)}):
            c.add("TfIdfVectorizer", f"{mode.lower()}{'_weights' if weights else ''}", [x], min_gram_length=1, max_gram_length=3, max_skip_count=2, mode=mode, **shared, **weights)
    for low, high, skips in ((1, 1, 0), (2, 2, 0), (2, 3, 5), (3, 3, 1), (1, 2, 20)):
        c.add("TfIdfVectorizer", f"{low}_to_{high}_{skips}", [x.astype(np.int32)], min_gram_length=low, max_gram_length=high, max_skip_count=skips, mode="TF", **shared)
    c.add("TfIdfVectorizer", "row", [x[0]], min_gram_length=1, max_gram_length=3, max_skip_count=1, mode="TF", **shared)
    c.add("TfIdfVectorizer", "short_rows", [x[:, :1]], min_gram_length=2, max_gram_length=3, max_skip_count=0, mode="TF", **shared)
    shared["ngram_indexes"] = [0, 3, 2, 1, 5, 4, 6, 0, 3]
    c.add("TfIdfVectorizer", "shared_places", [x], min_gram_length=1, max_gram_length=3, max_skip_count=1, mode="TF", **shared)


def text_pools(c):
    """Words that are strings."""
    pool = ["zero", "one", "two", "three", "one", "two", "two", "", "three", "four"]
    x = c.rng.choice(["zero", "one", "two", "three", "four", "", "other"], (3, 11))
    shared = dict(domain="", ngram_counts=[0, 4], pool_strings=pool, ngram_indexes=[0, 3, 2, 1, 5, 4, 6])
    for mode, weights in (("TF", {}), ("TFIDF", {"weights": c.floats(7)})):
        for low, high, skips in ((1, 1, 0), (1, 2, 0), (2, 2, 3)):
            c.add("TfIdfVectorizer", f"words_{mode.lower()}_{low}_to_{high}_{skips}", [x], min_gram_length=low, max_gram_length=high, max_skip_count=skips, mode=mode, **shared, **weights)


def optimisers(c):
    """Of doubles, and at the first update; ONNX's own tests have the rest."""
    domain = "ai.onnx.preview.training"
    for dtype, type_, rtol in ((np.float32, TensorProto.FLOAT, 1e-4), (np.float64, TensorProto.DOUBLE, 1e-9)):
        for updates in (0, 3):
            name = f"{np.dtype(dtype).name}_{updates}"
            r, t = np.asarray(0.1, dtype), np.array(updates)
            x, g, v, h = (c.real(2, 3, low=0.1, dtype=dtype) for _ in range(4))
            own = lambda value: np.float64(np.float32(value))  # attributes are float32
            full = own(0.01) * x + g
            fast = own(0.9) * v + (own(0.7) if updates else 1.0) * full
            shared = dict(outputs=(type_, type_), opset=1, domain=domain, rtol=rtol, norm_coefficient=0.01)
            c.add("Momentum", f"standard_{name}", [r, t, x, g, v], want=[(x - r * fast).astype(dtype), fast.astype(dtype)], alpha=0.9, beta=0.7, mode="standard", **shared)
            c.add("Momentum", f"nesterov_{name}", [r, t, x, g, v], want=[(x - r * (full + own(0.9) * fast)).astype(dtype), fast.astype(dtype)], alpha=0.9, beta=0.7, mode="nesterov", **shared)
            squares = h + full * full
            rate = r / (1 + updates * own(0.2))
            c.add("Adagrad", name, [r, t, x, g, h], want=[(x - rate * full / (np.sqrt(squares) + own(1e-3))).astype(dtype), squares.astype(dtype)], decay_factor=0.2, epsilon=1e-3, **shared)
            mean, squares = own(0.8) * v + (1 - own(0.8)) * full, own(0.6) * h + (1 - own(0.6)) * full * full
            rate = r * np.sqrt(1 - own(0.6) ** updates) / (1 - own(0.8) ** updates) if updates else r
            want = (1 - own(0.05)) * (x - rate * mean / (np.sqrt(squares) + own(1e-3)))
            c.add("Adam", name, [r, t, x, g, v, h], want=[want.astype(dtype), mean.astype(dtype), squares.astype(dtype)], alpha=0.8, beta=0.6, epsilon=1e-3, norm_coefficient_post=0.05,
                  **(shared | {"outputs": (type_,) * 3}))


def cases(seed):
    c = Cases(seed)
    for family in (linear, vector_machines, features, labels, words, texts, text_pools, optimisers):
        family(c)
    return c.all
