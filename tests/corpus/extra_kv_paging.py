"""False alarms: streams share a paged KV cache, each on pages of its own. Nothing to report.

``heads`` splits the cache the other way: interleaved slices whose spans overlap and whose bytes do
not. ``double_booked`` gives one page to two requests.
"""

import torch

N = 8
PAGES = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), 11.0 * i) for i in range(PAGES)])


def pages() -> torch.Tensor:
    streams = [torch.cuda.Stream() for _ in range(PAGES)]
    host = torch.stack([torch.full((N,), 10.0 * i) for i in range(PAGES)]).pin_memory()
    kv = torch.empty(PAGES, 2, N, device="cuda")
    out = torch.empty(PAGES, N, device="cuda")
    for page, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            kv[page, 0].fill_(page)
            kv[page, 1].copy_(host[page], non_blocking=True)
            torch.add(kv[page, 0], kv[page, 1], out=out[page])
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)  # edge: load-bearing
    return out


def heads() -> torch.Tensor:
    streams = [torch.cuda.Stream() for _ in range(PAGES)]
    kv = torch.empty(N, PAGES, device="cuda")  # one column per head
    out = torch.empty(PAGES, N, device="cuda")
    for head, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            kv[:, head].fill_(11 * head)
            out[head].copy_(kv[:, head])
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)  # edge: load-bearing
    return out


def double_booked() -> torch.Tensor:
    streams = [torch.cuda.Stream() for _ in range(PAGES)]
    kv = torch.empty(PAGES, N, device="cuda")  # buffer
    out = torch.empty(PAGES, N, device="cuda")
    table = [0, 1, 1]
    for i, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            kv[table[i]].fill_(11 * i)  # first; second
            out[i].copy_(kv[table[i]])  # first
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)  # edge: load-bearing
    return out
