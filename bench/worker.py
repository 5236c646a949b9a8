#!/usr/bin/env python3
"""One runtime holding one model, in a process of its own: worker.py RUNTIME MODEL.onnx THREADS PRECISION [DIM=N...]

Loads the model, then says {"load_s", "version"} or {"error"}. Each line {"seconds": S} on stdin is answered with
{"min_ms", "median_ms", "runs"} of the runs made in that time. Ends with its stdin.
"""

import json
import os
import sys
import time

from inputs import make_inputs, parse_dims


def load_onnxruntime(path, feeds, threads, _precision):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # Inputs and outputs bound once: what is left of Python in a run is one call.
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return onnxruntime.__version__, lambda: session.run_with_iobinding(binding)


def load_openvino(path, feeds, threads, precision):
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    # As mcc computes: by default openvino takes bf16 on CPUs that have it.
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
                                                 "INFERENCE_PRECISION_HINT": {"fp32": "f32"}.get(precision, precision)})
    request = compiled.create_infer_request()
    for name, array in feeds.items():
        request.set_tensor(name, openvino.Tensor(array))
    return openvino.__version__.split("-")[0], lambda: request.infer(share_outputs=True)


def load_onnxruntime_cuda(path, feeds, _threads, precision):
    import onnxruntime

    if precision not in ("fp32", "tf32"):
        raise RuntimeError(f"it does not compute a model of f32 in {precision}")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise RuntimeError("this onnxruntime has no CUDA provider")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    cuda = {"use_tf32": str(int(precision == "tf32")), "cudnn_conv_algo_search": "EXHAUSTIVE", "enable_cuda_graph": "1"}
    session = onnxruntime.InferenceSession(path, options, providers=[("CUDAExecutionProvider", cuda)])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise RuntimeError("the CUDA provider cannot be loaded")
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def run():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return onnxruntime.__version__, run


def load_torch_compile(path, feeds, _threads, precision):
    """The model that the zoo's ONNX file was made from, as a torch user would run it: in 16 bits with weights and inputs of this type."""
    import torch

    import export_zoo

    if not torch.cuda.is_available():
        raise RuntimeError("this torch sees no GPU")
    name = os.path.splitext(os.path.basename(path))[0]
    if name not in export_zoo.ZOO:
        raise RuntimeError("only models of the zoo are torch models")
    # f32 as mcc computes: by default cuDNN takes TF32.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(0)
    model = export_zoo.ZOO[name]()[0].eval().cuda()
    inputs = [torch.from_numpy(array).cuda() for array in feeds.values()]
    if half := {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision):
        model, inputs = model.to(half), [x.to(half) if x.is_floating_point() else x for x in inputs]
    compiled = torch.compile(model, mode="max-autotune")  # which uses CUDA graphs

    def run():
        with torch.inference_mode():
            compiled(*inputs)
        torch.cuda.synchronize()

    for _ in range(3):
        run()
    return torch.__version__, run


LOADERS = {"onnxruntime": load_onnxruntime, "openvino": load_openvino, "onnxruntime_cuda": load_onnxruntime_cuda,
           "torch_compile": load_torch_compile}


def measure(run, seconds):
    for _ in range(2):  # the other runtimes have used the caches since the last slice
        run()
    times, clock = [], time.perf_counter
    end = clock() + seconds
    while len(times) < 3 or clock() < end:
        start = clock()
        run()
        times.append(clock() - start)
    times.sort()
    return {"min_ms": times[0] * 1e3, "median_ms": times[len(times) // 2] * 1e3, "runs": len(times)}


def main():
    runtime, path, threads, precision, dims = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], parse_dims(sys.argv[5:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not get between the answers

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        feeds = make_inputs(path, dims)
        start = time.perf_counter()
        version, run = LOADERS[runtime](path, feeds, threads, precision)
        answer({"load_s": time.perf_counter() - start, "version": version})
    except Exception as error:  # whatever the runtime raises is its verdict on this model
        answer({"error": str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)})
        return
    for line in sys.stdin:
        answer(measure(run, json.loads(line)["seconds"]))


if __name__ == "__main__":
    main()
