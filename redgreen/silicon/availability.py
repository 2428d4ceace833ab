"""Whether this process can prove on a real GPU, found out without initialising CUDA in it."""

from __future__ import annotations

import importlib.util
import os
import warnings


def why_not() -> str:
    """The reason, in one line; "" if all is there. Imports torch."""
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if torch.cuda.is_initialized():
        return ("CUDA is initialised in this process already, so that no forked child can use it; "
                "prove from the command line, or before the first use of the device")
    if importlib.util.find_spec("cuda") is None or (
        importlib.util.find_spec("cuda.bindings") is None
    ):
        return "the gates need the package cuda-bindings"
    if not _in_child(torch.cuda.is_available):
        return "torch.cuda.is_available() is false in a fresh process"
    return ""


def _in_child(ask: object) -> bool:
    """The answer of a forked child: to ask the driver here would make it useless for others."""
    assert callable(ask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        answer = False
        try:
            answer = bool(ask())
        finally:
            os._exit(0 if answer else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
