"""Kernels that reach the device without an operator of torch: Triton's are noticed, and refused."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..virtual.patches import Patches
from .session import Session

_MODULE = "triton.runtime.jit"
_LAUNCHED = ("a kernel of Triton was launched: it is no operator of torch, and its accesses "
             "are not seen on a real GPU")
_TOO_LATE = "Triton was imported during the measured run: whether it launched kernels was not seen"


class Foreign:
    """Watches Triton while a run is recorded. Nothing is imported for it."""

    def __init__(self, s: Session) -> None:
        self._session, self._watching = s, False

    def install(self, patches: Patches) -> None:
        function = getattr(sys.modules.get(_MODULE), "JITFunction", None)
        if function is None:
            return
        self._watching, s, original = True, self._session, function.run

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not s.closed:
                s.refuse(_LAUNCHED)
            return original(*args, **kwargs)

        patches.set(function, "run", run)

    def finish(self) -> None:
        if not self._watching and _MODULE in sys.modules:
            self._session.refuse(_TOO_LATE)
