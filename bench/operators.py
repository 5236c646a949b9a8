#!/usr/bin/env python3
"""Small models drawn at random, one operator or product of views each, beside onnxruntime: scripts/bench --operators [--seed N] [--count N]. Networks do not have all the
forms that operators can have; what a schedule does badly shows here, as a ratio far from the others'. Prints those that are slower, with what makes them again."""

import argparse
import ctypes
import datetime
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/dynamic"), str(ROOT / "bench")]
import machine  # noqa: E402
from race import race  # noqa: E402
from session import Session  # noqa: E402

MCC = os.environ.get("MCC", str(ROOT / "build/bin/mcc"))
SLOW = 1.1


class Net:
    """A model in the making, and the choices that it is made of."""

    def __init__(self, seed):
        self.random, self.data, self.said = random.Random(seed), np.random.default_rng(seed), []
        self.nodes, self.constants, self.inputs, self.names = [], [], [], 0

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def choose(self, *options):
        chosen = self.random.choice(options)
        self.said.append(str(chosen))
        return chosen

    def constant(self, values, dtype=np.int64):
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), self.name()))
        return self.constants[-1].name

    def weight(self, *shape):
        return self.constant(0.1 * self.data.standard_normal(shape), np.float32)

    def input(self, *shape):
        self.inputs.append(helper.make_tensor_value_info(self.name(), TensorProto.FLOAT, shape))
        return self.inputs[-1].name

    def op(self, kind, inputs, outputs=1, **attributes):
        made = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, **attributes))
        return made[0] if outputs == 1 else made

    def slice(self, x, axis, first, end, step=1):
        return self.op("Slice", [x, *(self.constant([n]) for n in (first, end, axis, step))])

    def model(self, y):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def viewed(net, heads, rows, columns):
    """[heads, rows, columns], a view of an input or of what is computed of one."""
    def source(*shape):
        x = net.input(*shape)
        return net.op("Relu", [x]) if net.choose(True, True, False) else x

    form, extra = net.choose("plain", "heads inside", "joint", "rows", "columns", "every second", "transposed", "picked", "joined", "split", "repeated", "padded", "heads last"), net.choose(1, 3, columns)
    if form in ("heads inside", "joint"):
        x = source(rows, heads * columns) if form == "heads inside" else net.slice(source(rows, extra + 2 * heads * columns), 1, extra, extra + heads * columns)
        return net.op("Transpose", [net.op("Reshape", [x, net.constant([rows, heads, columns])])], perm=[1, 0, 2])
    if form == "rows":
        return net.slice(source(heads, rows + extra, columns), 1, extra, rows + extra)
    if form == "columns":
        return net.slice(source(heads, rows, columns + extra), 2, extra, columns + extra)
    if form == "every second":
        return net.slice(source(heads, 2 * rows, columns), 1, 0, 2 * rows, 2)
    if form == "transposed":
        return net.op("Transpose", [source(heads, columns, rows)], perm=[0, 2, 1])
    if form == "picked":
        return net.op("Gather", [source(3, heads, rows, columns), net.constant(1)], axis=0)
    if form == "joined":
        return net.op("Concat", [source(heads, rows // 2, columns), source(heads, rows - rows // 2, columns)], axis=1)
    if form == "split":
        return net.op("Split", [source(3 * heads, rows, columns)], 3, axis=0, num_outputs=3)[1]
    if form == "repeated":
        return net.op("Expand", [source(1, rows, columns), net.constant([heads, 1, 1])])
    if form == "padded":
        return net.op("Pad", [source(heads, rows - 2, columns), net.constant([0, 1, 0, 0, 1, 0])])
    if form == "heads last":
        return net.op("Transpose", [source(rows, columns, heads)], perm=[2, 0, 1])
    return source(heads, rows, columns)


def product(net):
    heads, rows, columns, depth = net.choose(1, 4, 8), net.choose(64, 100, 196, 256), net.choose(64, 100, 196, 256), net.choose(32, 40, 48, 64)
    left = viewed(net, heads, rows, depth)
    right = net.op("Transpose", [viewed(net, heads, columns, depth)], perm=[0, 2, 1]) if net.choose(True, False) else viewed(net, heads, depth, columns)
    y, behind = net.op("MatMul", [left, right]), net.choose("", "Softmax", "Relu", "Transpose")
    return net.op(behind, [y], **({"perm": [1, 0, 2]} if behind == "Transpose" else {})) if behind else y


def convolution(net):
    group, size = net.choose(1, 1, 1, 4, 8), net.choose(14, 28, 33, 56)
    inputs, outputs = group * net.choose(3, 4, 8, 16, 25), group * net.choose(5, 8, 16, 24)
    (height, width), stride, dilation = net.choose((1, 1), (3, 3), (5, 5), (7, 7), (1, 7), (7, 1), (2, 2), (4, 4)), net.choose(1, 1, 2, 3), net.choose(1, 1, 2)
    pads = [net.choose(0, dilation * (height // 2)), net.choose(0, dilation * (width // 2))] * 2
    return net.op("Conv", [net.input(1, inputs, size, size), net.weight(outputs, inputs // group, height, width), net.weight(outputs)], group=group,
                  strides=[stride, stride], dilations=[dilation, dilation], pads=pads)


def depthwise(net):
    channels, kernel, stride, dilation, size = net.choose(16, 24, 100, 144), net.choose(3, 5, 7, 9), net.choose(1, 1, 2), net.choose(1, 1, 2), net.choose(14, 28, 56)
    return net.op("Conv", [net.input(1, channels, size, size), net.weight(channels, 1, kernel, kernel)], group=channels, strides=[stride, stride],
                  dilations=[dilation, dilation], pads=[kernel // 2 * dilation] * 4)


def signal(net):
    inputs, outputs, kernel = net.choose(1, 16, 64, 80), net.choose(16, 64, 128), net.choose(1, 3, 5, 8, 10, 16)
    stride, dilation, length = net.choose(1, 1, 2, 4), net.choose(1, 1, 2, 8), net.choose(400, 1000, 3000)
    return net.op("Conv", [net.input(1, inputs, length), net.weight(outputs, inputs, kernel)], strides=[stride], dilations=[dilation], pads=[net.choose(0, (kernel - 1) * dilation), 0])


def transposed_convolution(net):
    group, kernel, stride, size = net.choose(1, 1, 2, 8), net.choose(2, 3, 4, 5), net.choose(1, 2, 3), net.choose(14, 28)
    inputs, outputs = net.choose(16, 32, 64), net.choose(8, 16, 32)
    return net.op("ConvTranspose", [net.input(1, inputs, size, size), net.weight(inputs, outputs // group, kernel, kernel)], strides=[stride, stride], group=group, pads=[net.choose(0, 1)] * 4)


def pooling(net):
    kernel = net.choose(2, 3, 5, 7)
    return net.op(net.choose("MaxPool", "AveragePool"), [net.input(1, net.choose(16, 64, 100), *(2 * [net.choose(28, 56, 57)]))], kernel_shape=[kernel, kernel],
                  strides=2 * [net.choose(1, 2, 3)], pads=[net.choose(0, kernel // 2)] * 4, ceil_mode=net.choose(0, 1))


SHAPES = (64, 128, 128), (1, 64, 56, 56), (8, 100, 300), (16, 33, 65, 17)


def reduction(net):
    shape = net.choose(*SHAPES)
    axes = sorted(net.random.sample(range(len(shape)), net.random.randint(1, len(shape) - 1)))
    net.said.append(str(axes))
    return net.op(net.choose("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"), [net.input(*shape), net.constant(axes)], keepdims=0)


def along_an_axis(net):
    shape, kind = net.choose(*SHAPES), net.choose("Softmax", "LogSoftmax", "CumSum", "ArgMax", "Concat", "Gather")
    axis = net.choose(*range(len(shape)))
    if kind == "CumSum":
        return net.op(kind, [net.input(*shape), net.constant(axis)])
    if kind == "ArgMax":
        return net.op("Cast", [net.op(kind, [net.input(*shape)], axis=axis)], to=TensorProto.FLOAT)
    if kind == "Concat":
        return net.op(kind, [net.op("Relu", [net.input(*shape)]) for _ in range(3)], axis=axis)
    if kind == "Gather":
        return net.op(kind, [net.input(*shape), net.constant(net.data.integers(0, shape[axis], 50))], axis=axis)
    return net.op(kind, [net.input(*shape)], axis=axis)


def movement(net):
    shape = net.choose(*SHAPES, (4, 16, 32, 64), (2, 8, 16, 16, 32))
    order = list(range(len(shape)))
    net.random.shuffle(order)
    net.said.append(str(order))
    return net.op("Transpose", [net.input(*shape)], perm=order)


def resize(net):
    scale = net.choose(2.0, 0.5, 1.5, 4.0)
    return net.op("Resize", [net.input(1, net.choose(3, 16, 64), *(2 * [net.choose(14, 28, 56)])), "", net.constant([1, 1, scale, scale], np.float32)],
                  mode=net.choose("nearest", "linear", "cubic"), coordinate_transformation_mode=net.choose("half_pixel", "asymmetric", "align_corners"))


def recurrence(net):
    hidden, steps, inputs, directions, kind = net.choose(32, 64, 128), net.choose(20, 50), net.choose(16, 64), net.choose(1, 2), net.choose("LSTM", "GRU")
    gates = 4 if kind == "LSTM" else 3
    return net.op(kind, [net.input(steps, 1, inputs), net.weight(directions, gates * hidden, inputs), net.weight(directions, gates * hidden, hidden)], hidden_size=hidden,
                  direction="bidirectional" if directions == 2 else "forward")


MAKERS = product, product, product, convolution, convolution, depthwise, signal, transposed_convolution, pooling, reduction, along_an_axis, movement, resize, recurrence


def measure(seed, folder, threads, seconds):
    """What was drawn, and milliseconds of mcc and of onnxruntime."""
    net = Net(seed)
    maker = net.random.choice(MAKERS)
    model = net.model(maker(net))
    what = " ".join([maker.__name__, *net.said])
    path, library = folder / f"{seed}.onnx", folder / f"{seed}.so"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None  # no such model: a window larger than its image
    subprocess.run([MCC, "compile", path, "-o", library], check=True, capture_output=True)
    feeds = {i.name: net.data.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in model.graph.input}
    session = Session(library, threads)
    want, got = peer.run(["y"], feeds)[0], session.run(feeds, ["y"])[0]
    if want.size == 0:
        return None
    error = np.abs(want - got).max() / max(1e-6, np.abs(want).max())
    if not error < 1e-3:
        raise SystemExit(f"seed {seed}, {what}: results differ by {error:.2g} of the largest")
    run = lambda: session.check(session.lib.mcc_session_run(session.session, ctypes.byref(session.error)))  # noqa: E731
    times = race([run, lambda: peer.run(["y"], feeds)], seconds, 0.1)
    session.close()
    return what, *times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first model")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each model")
    parser.add_argument("--output", default=ROOT / "bench/results", help="the folder of the results")
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            if measured := measure(seed, pathlib.Path(temporary), arguments.threads, arguments.seconds):
                rows.append((seed, *measured))
                print(f"{seed:6} {rows[-1][2]:9.3f} {rows[-1][3]:9.3f} {rows[-1][2] / rows[-1][3]:6.2f} {rows[-1][1]}", flush=True)
    ratios = sorted(mine / theirs for _, _, mine, theirs in rows)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slow = sorted((row for row in rows if row[2] > SLOW * row[3]), key=lambda row: row[3] / row[2])
    today, cpu = datetime.date.today(), machine.cpu_facts()
    lines = [f"# Operators and views drawn at random beside onnxruntime {onnxruntime.__version__}, {today}", "",
             f"{cpu['name']} ({cpu['family_model_stepping']}: {', '.join(cpu['features'])}), mcc {machine.source_version()}. `scripts/bench --operators --seed {arguments.seed} --count {arguments.count}`, "
             f"{arguments.threads} thread(s); least of the runs, which take turns, in ms; both called from Python.", "",
             f"mcc / onnxruntime of {len(rows)} models: geometric mean {mean:.2f}, median {ratios[len(ratios) // 2]:.2f}, ninth decile {ratios[len(ratios) * 9 // 10]:.2f}, largest {ratios[-1]:.2f}.", "",
             f"Slower by more than a tenth: {len(slow)}.", "", "| seed | model | mcc | onnxruntime | ratio |", "|--:|---|--:|--:|--:|"]
    lines += [f"| {seed} | {what} | {mine:.3f} | {theirs:.3f} | {mine / theirs:.2f} |" for seed, what, mine, theirs in slow]
    names = ("seed", "model", "mcc_ms", "onnxruntime_ms")
    result = {"cpu": cpu, "mcc": machine.source_version(), "onnxruntime": onnxruntime.__version__, "threads": arguments.threads, "models": [dict(zip(names, row)) for row in rows]}
    print("\n".join(lines[4:]))
    print(machine.save(arguments.output, today, cpu["name"], "-operators", result, "\n".join(lines) + "\n"))


if __name__ == "__main__":
    main()
