"""ONNX's own operators on tensors of strings."""

import numpy as np
from case import Cases, tensor
from onnx import TensorProto, helper

STRING, INT64, BOOL = TensorProto.STRING, TensorProto.INT64, TensorProto.BOOL
WORDS = np.array([["b", "", "ä"], ["a b", "b", "Zürich"]], object)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def moves(c):
    """What moves or compares elements."""
    one = {"y": STRING}
    c.model("Identity-strings", [node("Identity", ["x"])], {"x": WORDS}, one)
    c.model("Identity-scalar", [node("Identity", ["x"])], {"x": np.array("word", object)}, one)
    c.model("Identity-zeros", [node("Identity", ["x"])], {"x": np.array(["a\0b", "\0", "", "a"], object)}, one, want=[np.array(["a\0b", "\0", "", "a"], object)])
    c.model("Identity-none", [node("Identity", ["x"])], {"x": np.empty((0, 2), object)}, one)
    c.model("Identity-twice", [node("Identity", ["x"]), node("Identity", ["x"], ["z"])], {"x": WORDS}, {"y": STRING, "z": STRING})
    c.model("Transpose-strings", [node("Transpose", ["x"])], {"x": WORDS}, one)
    c.model("Gather-strings", [node("Gather", ["x", "i"], axis=1)], {"x": WORDS, "i": np.array([2, 0])}, one)
    c.model("Concat-strings", [node("Concat", ["x", "k", "x"], axis=0)], {"x": WORDS}, one, initializers=[tensor("k", np.array([["b", "k", ""]], object))])
    c.model("Where-strings", [node("Where", ["c", "x", "k"])], {"c": np.array([[True, False, True]]), "x": WORDS}, one, initializers=[tensor("k", np.array("other", object))])
    c.model("Equal-strings", [node("Equal", ["x", "k"])], {"x": WORDS}, {"y": BOOL}, initializers=[tensor("k", np.array(["b", "", "x"], object))])
    c.model("Expand-strings", [node("Expand", ["x", "s"])], {"x": WORDS}, one, initializers=[tensor("s", np.array([2, 2, 3]))])
    c.model("Pad-strings", [node("Pad", ["x", "p"])], {"x": WORDS}, one, initializers=[tensor("p", np.array([0, 1, 1, 0]))], want=[np.pad(WORDS, ((0, 1), (1, 0)), constant_values="")])
    c.model("Constant-strings", [node("Constant", [], ["k"], value_strings=["b", "c", "ä"]), node("Equal", ["x", "k"])], {"x": WORDS}, {"y": BOOL})
    c.model("Compress-strings", [node("Compress", ["x", "c"], axis=1)], {"x": WORDS, "c": np.array([True, False, True])}, one)
    yes, no = (helper.make_graph([node("Identity" if k else "StringConcat", ["x"] if k else ["x", "x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", STRING, None)]) for k in (1, 0))
    for condition in (True, False):
        c.model(f"If-strings_{condition}", [node("If", ["c"], then_branch=yes, else_branch=no)], {"c": np.array(condition), "x": WORDS}, one)
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", INT64, []), ("g", BOOL, []), ("s", STRING, [2]))]
    body = helper.make_graph([node("Identity", ["g"], ["go"]), node("StringConcat", ["s", "k"], ["t"]), node("Identity", ["t"], ["u"])], "b", infos,
                             [helper.make_tensor_value_info("go", BOOL, []), helper.make_tensor_value_info("t", STRING, [2]), helper.make_tensor_value_info("u", STRING, [2])])
    c.model("Loop-strings", [node("Loop", ["n", "", "x"], ["y", "all"], body=body)], {"n": np.array(3), "x": np.array(["a", ""], object)}, {"y": STRING, "all": STRING},
            initializers=[tensor("k", np.array(["-", "+"], object))])


def texts(c):
    c.model("StringConcat-rows", [node("StringConcat", ["x", "k"])], {"x": WORDS}, {"y": STRING}, initializers=[tensor("k", np.array([["!"], ["\0?"]], object))],
            want=[WORDS + np.array([["!"], ["\0?"]], object)])
    c.model("StringConcat-open", [node("StringConcat", ["x", "y1"], ["y"])], {"x": WORDS, "y1": WORDS[:, ::-1]}, {"y": STRING}, open_rows=True)
    lines = np.array([["  a b  c ", "", " "], ["xabyab", "ab", "one"]], object)
    for variant, a in (("space", {}), ("text", dict(delimiter="ab")), ("blank", dict(delimiter=" ")), ("one", dict(maxsplit=1)), ("none", dict(maxsplit=0)), ("one_text", dict(delimiter="b", maxsplit=1))):
        for rows in (False, True):
            c.model(f"StringSplit-{variant}{'_open' if rows else ''}", [node("StringSplit", ["x"], ["y", "n"], **a)], {"x": lines}, {"y": STRING, "n": INT64}, open_rows=rows)
    c.model("StringSplit-joined", [node("StringSplit", ["x"], ["p", "n"]), node("StringConcat", ["p", "p"])], {"x": lines}, {"y": STRING})
    for variant, a in (("", {}), ("_first", dict(sorted=0)), ("_axis", dict(axis=0))):
        x = np.array([["b", "a"], ["Z", "b"], ["b", "a"]], object)
        c.model(f"Unique-strings{variant}", [node("Unique", ["x"], ["y", "i", "j", "k"], **a)], {"x": x}, {"y": STRING, "i": INT64, "j": INT64, "k": INT64})
    c.model("Unique-strings_alone", [node("Unique", ["x"], ["y"])], {"x": WORDS}, {"y": STRING})
    words = np.array(["the", "Äpfel", "The", "ÇA", "ŁÓDŹ", "ΣΑΣ", "ЖУК", "straße", "ı"], object)
    for change in ("NONE", "LOWER", "UPPER"):
        for sensitive in (0, 1):
            for stops in ([], ["the", "äpfel"]):
                a = dict(case_change_action=change, is_case_sensitive=sensitive, locale="C.UTF-8") | ({"stopwords": stops} if stops else {})
                c.model(f"StringNormalizer-{change.lower()}_{sensitive}_{len(stops)}", [node("StringNormalizer", ["x"], **a)], {"x": words}, {"y": STRING})
    c.model("StringNormalizer-row", [node("StringNormalizer", ["x"], stopwords=["b"], is_case_sensitive=1)], {"x": np.array([["b", "a", "b"]], object)}, {"y": STRING})
    c.model("StringNormalizer-open", [node("StringNormalizer", ["x"], stopwords=["b"], is_case_sensitive=1)], {"x": np.array(["b", "a", "b"], object)}, {"y": STRING}, open_rows=True)
    c.model("StringNormalizer-nothing", [node("StringNormalizer", ["x"], stopwords=["b"], is_case_sensitive=1)], {"x": np.array(["b"], object)}, {"y": STRING})


def casts(c):
    numbers = np.array([0, -0.0, 1, 1.5, 3.14159265, 1e10, 1e-10, 123456789, np.nan, np.inf, -np.inf, 0.1, 1e7, 1e8, 3.4e38, 1e-4])
    for dtype in (np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint64, bool):
        x = numbers.astype(dtype) if np.dtype(dtype).kind == "f" else np.array([0, 1, 100]).astype(dtype) if np.dtype(dtype).kind in "ub" else np.array([-7, 0, 99]).astype(dtype)
        c.model(f"Cast-{np.dtype(dtype).name}_to_strings", [node("Cast", ["x"], to=STRING)], {"x": x}, {"y": STRING})
    texts = np.array(["1", " -2", "+7", "1.5e1", "0.125", "1e30", "NaN", "inf", "-INF", "3x"], object)
    for name in ("FLOAT", "DOUBLE", "FLOAT16"):
        c.model(f"Cast-strings_to_{name.lower()}", [node("Cast", ["x"], to=getattr(TensorProto, name))], {"x": texts}, {"y": getattr(TensorProto, name)})
    for name in ("INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT8", "BOOL"):
        c.model(f"Cast-strings_to_{name.lower()}", [node("Cast", ["x"], to=getattr(TensorProto, name))], {"x": np.array(["1", " 22", "+7", "3x", "1.5", "0"], object)}, {"y": getattr(TensorProto, name)})
    c.model("CastLike-strings", [node("CastLike", ["x", "k"])], {"x": np.array(["1", "2"], object)}, {"y": TensorProto.FLOAT}, initializers=[tensor("k", np.array([1.0], np.float32))], want=[np.array([1, 2], np.float32)])


PATTERNS = (
    "", "a", "a.c", "(?s)a.c", "a|b|cd", "(a|b)*abb", "a+b*c?", "a{2,3}", "(ab){2}", "a{2,}", "x{0}", "a*?", "[abc]+", "[^a]", "[a-cx-z]*", r"[\]a-]+", "[]a]+", "[[:alpha:]]+", "[[:^digit:]]+",
    r"\d+", r"\D+", r"\w+", r"\W", r"\s*", r"\S+", "(?i)abc", "(?i)straSSe", "(?i)[a-k]+", "(?i:A)b", "a(?i)b|c", "^abc$", "a$b", r"\Aabc\z", "(?m)^a$\n^b$", r"\bfoo\b", r"\Bfoo", r"foo\b.*", r"(\w+\b ?)+",
    "ä", "[ä-ü]+", "[^ä]", "äöü|ö", ".", "..", r"\x41", r"\x{e4}", r"\101", r"\.", r"\Qa.c\E", "(?P<n>a)(?<m>b)", "(?:ab|a)(?:c|bcd)", "((a*)*)*b", "a{", "a{,2}", "a{1,2", r"\C+", "[\\x{10000}-\\x{10ffff}]",
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", r"\d{4}-\d{2}-\d{2}", "(a|ab)(c|bcd)(d*)", "(?U)a+", "()", "(|a)+", "[[:word:]]*", r"[^\d\s]+", "\t", r"\t",
)
TEXTS = ("", "a", "b", "aa", "aaa", "aaaa", "ab", "abab", "abb", "babb", "abc", "ABC", "aBc", "Ac", "Ab", "aC", "a.c", "aäc", "a\nc", "a\nb", "\n", "\t", " ", "  ", "x", "xyz", "]", "-", "]a-", "cd", "abcd", "foo",
         "foo bar", "a b", "foo1", "xfoo", "1", "123", "2024-01-31", "someone@example.com", "a@b", "ä", "ö", "äöü", "ß", "K", "\u212a", "k", "ſ", "\U00010400", "A", "a{", "a{,2}", "a{1,2", "a\0", "straſſe", "STRASSE", "_", "$")


def patterns(c):
    """RE2 is onnxruntime's, too."""
    for i, pattern in enumerate(PATTERNS):
        c.model(f"RegexFullMatch-{i:02}", [node("RegexFullMatch", ["x"], pattern=pattern)], {"x": np.array(TEXTS, object)}, {"y": BOOL})


def cases(seed):
    c = Cases(seed)
    for family in (moves, texts, casts, patterns):
        family(c)
    return c.all
