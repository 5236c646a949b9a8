#!/usr/bin/env python3
"""Write well-known architectures as ONNX files: export_zoo.py OUT_DIR [NAME...]

Batch 1, opset 17, seeded random weights. Each net is settled first (see `settle`), so that its output depends on every
layer and has an ordinary size: a comparison of outputs then means something.
"""

import os
import sys
import warnings

warnings.filterwarnings("ignore")

import onnx
import torch
import torchvision.models as vision
import transformers
from onnx import helper

OPSET = 17


class Named(torch.nn.Module):
    """A transformers model as a function of positional tensors, returning one of its outputs."""

    def __init__(self, model, inputs, output, **options):
        super().__init__()
        self.model, self.inputs, self.output, self.options = model, inputs, output, options

    def forward(self, *tensors):
        return getattr(self.model(**dict(zip(self.inputs, tensors)), **self.options), self.output)


class Tagger(torch.nn.Module):
    """Token tagger: embedding, two-layer bidirectional LSTM, linear."""

    def __init__(self, vocabulary=5000, width=128, hidden=256, tags=32):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.lstm = torch.nn.LSTM(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(2 * hidden, tags)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def image_net(make):
    def build():
        return make(weights=None), lambda batch: (torch.randn(batch, 3, 224, 224),), ["image"]

    return build


def text_net(make_model, output, tokens, **options):
    def build():
        names = ["input_ids", "attention_mask"]

        def inputs(batch):
            return torch.randint(0, 30000, (batch, tokens)), torch.ones(batch, tokens, dtype=torch.long)

        return Named(make_model(), names, output, **options), inputs, names

    return build


def lstm_tagger():
    return Tagger(), lambda batch: (torch.randint(0, 5000, (batch, 64)),), ["tokens"]


def mlp():
    layers = torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    return torch.nn.Sequential(*layers), lambda batch: (torch.randn(batch, 1, 28, 28),), ["image"]


class Product(torch.nn.Module):
    """A product of two variable matrices."""

    def forward(self, a, b):
        return a @ b


def write_product(path, tensors, names):
    """Tracing would multiply, for which CPUs take minutes in 16 bits."""
    kinds = {torch.float32: onnx.TensorProto.FLOAT, torch.float16: onnx.TensorProto.FLOAT16}
    values = [helper.make_tensor_value_info(name, kinds[tensors[0].dtype], list(tensors[0].shape)) for name in [*names, "output"]]
    graph = helper.make_graph([helper.make_node("MatMul", names, ["output"])], "product", values[:2], values[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8), path)


def product(size, dtype):
    return lambda: (Product(), lambda batch: tuple(torch.randn(size, size).to(dtype) for _ in range(2)), ["a", "b"])


def bert():
    return transformers.BertModel(transformers.BertConfig(attn_implementation="eager"))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager"))


ZOO = {
    "resnet50": image_net(vision.resnet50),
    "mobilenet_v2": image_net(vision.mobilenet_v2),
    "efficientnet_b0": image_net(vision.efficientnet_b0),
    "convnext_tiny": image_net(vision.convnext_tiny),
    "vit_b16": image_net(vision.vit_b_16),
    "bert_base": text_net(bert, "last_hidden_state", tokens=128),
    "gpt2": text_net(gpt2, "logits", tokens=64, use_cache=False),
    "lstm_tagger": lstm_tagger,
    "mlp": mlp,
    "matmul_4096": product(4096, torch.float32),
    "matmul_4096_f16": product(4096, torch.float16),
}


@torch.no_grad()
def settle(model, inputs):
    """Gives an untrained net the sizes of a trained one's activations.

    As initialised, some nets answer with zeros whatever goes in (a zero head, a branch scaled by 1e-6) or with values
    near the smallest float (batch norms whose statistics were never taken).
    """
    for name, parameter in model.named_parameters():
        if "layer_scale" in name:
            parameter.copy_(0.1 + 0.4 * torch.rand_like(parameter))
        elif not parameter.any():
            parameter.normal_(std=0.02)
    model.eval()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if norms:
        for norm in norms:
            norm.train().momentum = 1.0
        model(*inputs(4))
        model.eval()


def export(name, path):
    torch.manual_seed(0)
    model, inputs, names = ZOO[name]()
    part = path + ".part"  # a run cut short leaves no half-written model behind
    if isinstance(model, Product):
        write_product(part, inputs(1), names)
    else:
        settle(model, inputs)
        torch.onnx.export(model, inputs(1), part, dynamo=False, opset_version=OPSET, do_constant_folding=True,
                          input_names=names, output_names=["output"])
    os.replace(part, path)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, names = sys.argv[1], sys.argv[2:] or list(ZOO)
    unknown = [name for name in names if name not in ZOO]
    if unknown:
        sys.exit(f"not in the zoo: {', '.join(unknown)} (there are: {', '.join(ZOO)})")
    os.makedirs(folder, exist_ok=True)
    for name in names:
        path = os.path.join(folder, name + ".onnx")
        export(name, path)
        print(f"{name}: {os.path.getsize(path) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
