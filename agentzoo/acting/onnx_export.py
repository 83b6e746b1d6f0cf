"""A network's pass as an ONNX graph, and ONNX Runtime sessions."""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn

from agentzoo.errors import ConfigError
from agentzoo.extras import needed
from agentzoo.nn.plain import onnx_attention

OPSET = 20 if onnx_attention is None else 23
EXAMPLES = 8  # windows that the exporter traces; the graph takes any number


def to_onnx(
    network: nn.Module, example: tuple[Tensor, ...], inputs: tuple[str, ...], outputs: tuple[str, ...], name: str
) -> bytes:
    """The ONNX model of `network`, whose inputs and outputs share a leading axis of any length.

    Raises:
        ConfigError: a package is missing, or the network cannot be exported; `name` is its name in the message.
    """
    onnx = require("onnx")
    require("onnxscript")
    rows = torch.export.Dim("rows", min=1, max=65_536)
    shapes = (tuple({0: rows} for _ in inputs),)
    level = logging.getLogger("torch.onnx").level
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                network,
                example,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                optimize=True,
                external_data=False,
            )
        model = program.model_proto
        onnx.checker.check_model(model)
    except Exception as error:  # the exporter raises many types
        text = " ".join(str(error).split())
        raise ConfigError(f"{name} cannot be exported to ONNX: {type(error).__name__}: {text[:300]}") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
    if any(entry.type.tensor_type.shape.dim[0].HasField("dim_value") for entry in model.graph.input):
        raise ConfigError(f"{name} can only be exported for a fixed number of windows.")
    data: bytes = model.SerializeToString()
    return data


def open_session(data: bytes) -> Any:
    """An ONNX Runtime session on the CPU, with as many threads as PyTorch uses now.

    Raises:
        ConfigError: ONNX Runtime is not installed.
    """
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    # Spinning threads occupy the cores that the environment needs: on two cores its step takes 5 times as long.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def require(name: str) -> Any:
    """Import a package of the extra `export`, or raise ConfigError with the command that installs it."""
    return needed(name, "export", "ONNX")
