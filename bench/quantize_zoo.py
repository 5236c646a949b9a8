#!/usr/bin/env python3
"""Quantise zoo models with onnxruntime's tools: quantize_zoo.py ZOO_DIR OUT_DIR

resnet50_qdq, mobilenet_v2_qdq, efficientnet_b0_qdq: u8 activations and i8 weights for each channel between QuantizeLinear and DequantizeLinear, ranges from
four seeded images. bert_base_dynamic: MatMulInteger of activations that are quantised at run time.
"""

import pathlib
import sys

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Images(CalibrationDataReader):
    def __init__(self, count=4):
        random = np.random.default_rng(0)
        self.left = [{"image": random.standard_normal((1, 3, 224, 224)).astype(np.float32)} for _ in range(count)]

    def get_next(self):
        return self.left.pop(0) if self.left else None


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    zoo, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name in ("resnet50", "mobilenet_v2", "efficientnet_b0"):
        prepared = out / f"{name}.prepared.onnx"
        quant_pre_process(zoo / f"{name}.onnx", prepared)
        quantize_static(prepared, out / f"{name}_qdq.onnx", Images(), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        prepared.unlink()
    quantize_dynamic(zoo / "bert_base.onnx", out / "bert_base_dynamic.onnx", weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main()
