"""A session of a compiled model through the runtime's C interface: several runs in one session, with a shape of its own each."""

import ctypes
import os
import pathlib

import numpy as np

BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build"))
TYPES = {"float32": "f32", "int64": "i64", "bool": "bool", "int32": "i32", "float64": "f64", "uint8": "u8", "int8": "i8", "float16": "f16"}


def use_stand_in_driver():
    """Sessions of models for GPUs run on the stand-in for NVIDIA's driver from now on, here and in programs that are started."""
    driver = BUILD / "tests/fake_cuda/libcuda.so.1"
    os.environ.update({"FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "90", "LD_LIBRARY_PATH": f"{driver.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"})
    ctypes.CDLL(str(driver), mode=ctypes.RTLD_GLOBAL)  # the loader finds it by its name from now on


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.POINTER(ctypes.c_int64))]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("threads", ctypes.c_int32), ("executor", ctypes.c_void_p), ("arena", ctypes.c_void_p),
                ("arena_size", ctypes.c_size_t), ("profile", ctypes.c_int32), ("cuda_device", ctypes.c_int32),
                ("cuda_stream", ctypes.c_void_p), ("has_seed", ctypes.c_int32), ("reserved", ctypes.c_int32), ("seed", ctypes.c_uint64)]


class Sizes(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("arena_bytes", ctypes.c_int64)]


class RunError(Exception):
    pass


class Session:
    def __init__(self, path, threads=0, arena=None, seed=None):
        self.lib = ctypes.CDLL(str(BUILD / "lib/libmcc_runtime.so.0"))
        self.lib.mcc_dtype_name.restype = ctypes.c_char_p
        self.types = {self.lib.mcc_dtype_name(i).decode(): i for i in range(32)}
        self.model, self.session, self.error = ctypes.c_void_p(), ctypes.c_void_p(), Error()
        self.check(self.lib.mcc_model_open(str(path).encode(), ctypes.byref(self.model), ctypes.byref(self.error)))
        self.arena = arena  # an array, aligned
        self.in_place = set()  # outputs of the last run that were
        options = Options(ctypes.sizeof(Options), threads, None, arena.ctypes.data if arena is not None else None,
                          arena.nbytes if arena is not None else 0, has_seed=seed is not None, seed=seed or 0)
        self.check(self.lib.mcc_session_create(self.model, ctypes.byref(options), ctypes.byref(self.session), ctypes.byref(self.error)))

    def check(self, status):
        if status:
            raise RunError(self.error.message.decode())

    def arena_bytes(self):
        sizes = Sizes(ctypes.sizeof(Sizes))
        self.lib.mcc_model_get_sizes(self.model, ctypes.byref(sizes))
        return sizes.arena_bytes

    def run(self, feeds, outputs, in_place=None, on_device=False):
        """Arrays by name in, arrays in the order of the names out. in_place: inputs by the outputs that get their memory, which is the GPU's
        with on_device."""
        self.feeds = {name: np.array(value, order="C") for name, value in feeds.items()}  # stay until the next run
        in_place, places = in_place or {}, {}
        for name in self.in_place - set(in_place):
            self.set("output", name, None)
        self.in_place = set(in_place)
        for name, value in self.feeds.items():
            places[name] = self.on_device(value) if on_device and name in in_place.values() else value.ctypes.data
            self.set("input", name, self.tensor(places[name], value))
        for name, of_input in in_place.items():
            self.set("output", name, self.tensor(places[of_input], self.feeds[of_input]))
        try:
            self.check(self.lib.mcc_session_run(self.session, ctypes.byref(self.error)))
            return [self.from_device(places[in_place[name]], self.feeds[in_place[name]]) if on_device and name in in_place else self.output(name)
                    for name in outputs]
        finally:
            for name in in_place.values() if on_device else ():
                self.lib.mcc_session_device_free(self.session, ctypes.c_void_p(places[name]))

    def tensor(self, place, like):
        dims = (ctypes.c_int64 * max(1, like.ndim))(*like.shape)
        return Tensor(place, like.nbytes, self.types[TYPES[like.dtype.name]], like.ndim, dims)

    def set(self, kind, name, tensor):
        index = getattr(self.lib, f"mcc_model_find_{kind}")(self.model, name.encode())
        set_it = getattr(self.lib, f"mcc_session_set_{kind}")
        self.check(set_it(self.session, ctypes.c_size_t(index), ctypes.byref(tensor) if tensor else None, ctypes.byref(self.error)))

    def on_device(self, array):
        """Memory of the GPU with what the array holds."""
        place = ctypes.c_void_p()
        self.check(self.lib.mcc_session_device_alloc(self.session, ctypes.c_size_t(array.nbytes), ctypes.byref(place), ctypes.byref(self.error)))
        self.copy(place, ctypes.c_void_p(array.ctypes.data), array.nbytes)
        return place.value

    def from_device(self, place, like):
        array = np.empty_like(like)
        self.copy(ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(place), array.nbytes)
        return array

    def copy(self, to, source, count):
        self.check(self.lib.mcc_session_device_copy(self.session, to, source, ctypes.c_size_t(count), ctypes.byref(self.error)))

    def output(self, name):
        tensor = Tensor()
        index = self.lib.mcc_model_find_output(self.model, name.encode())
        self.check(self.lib.mcc_session_output(self.session, ctypes.c_size_t(index), ctypes.byref(tensor), ctypes.byref(self.error)))
        shape = [tensor.dims[i] for i in range(tensor.rank)]
        name_of = {number: word for word, number in self.types.items()}[tensor.dtype]
        dtype = np.dtype(next(numpy for numpy, ours in TYPES.items() if ours == name_of))
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(ctypes.string_at(tensor.data, count * dtype.itemsize), dtype).reshape(shape).copy()

    def close(self):
        self.lib.mcc_session_destroy(self.session)
        self.lib.mcc_model_close(self.model)
