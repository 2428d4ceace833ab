"""One call site runs for every instance of a class: one edge, many instances."""

import torch

N = 8
LAYERS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0 + 0 + 1 + 2)


class Layer:
    """Adds its index on a stream of its own."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream = torch.cuda.Stream()
        self._out = torch.empty(N, device="cuda")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)  # edge fork: load-bearing
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(SPIN)
            torch.add(x, self._index, out=self._out)
        current.wait_stream(self._stream)  # edge join: load-bearing
        return self._out


def layers() -> torch.Tensor:
    model = [Layer(i) for i in range(LAYERS)]
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    x.fill_(1)
    for layer in model:
        x = layer(x)
    return out.copy_(x)
