"""What is proved of graphs: dependencies inside of them, and what the virtual GPU does not have."""

from __future__ import annotations

import pytest
import torch

import redgreen

N = 8


def verdicts(proof: redgreen.Proof) -> list[tuple[str, str]]:
    return [(edge.code.partition("  # ")[0], edge.verdict) for edge in proof.edges]


def fork_join() -> list[torch.Tensor]:
    side = torch.cuda.Stream()
    x, a, b, c, out = (torch.zeros(N, device="cuda") for _ in range(5))
    graph, seen = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        torch.add(x, 1, out=a)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.mul(a, 2, out=b)
        torch.mul(a, 3, out=c)
        main.wait_stream(side)
        torch.add(b, c, out=out)
    for i in range(3):
        x.fill_(i)
        graph.replay()
        seen.append(out.clone())
    return seen


def test_a_captured_dependency_is_an_edge() -> None:
    """Cut, it leaves the branches unordered in every replay; the capture itself goes on."""
    proof = redgreen.prove(fork_join)
    assert proof.green.verdict == "proved"
    assert verdicts(proof) == [
        ("side.wait_stream(main)", "load-bearing"), ("main.wait_stream(side)", "load-bearing")]
    for edge in proof.edges:
        assert edge.instances == 3  # one for each replay
        assert edge.reason == "" and "RAW" in edge.guards[0] and edge.witness


def test_the_witness_is_a_schedule_of_the_branches() -> None:
    from redgreen.api import make_runner
    from redgreen.replay import replay
    from redgreen.subject import Call
    from redgreen.token import decode

    subject = Call(fork_join, ())
    for edge in redgreen.prove(fork_join).edges:
        assert edge.witness
        found = replay(decode(edge.witness), subject,
                       make_runner(subject, "virtual", "native", 60.0))
        assert found.reproduced and found.run.outcome.status == "returned"
        assert {fault.action for fault in found.faults} == {"cut"}


def unread_branch() -> torch.Tensor:
    side = torch.cuda.Stream()
    x, a, b = (torch.zeros(N, device="cuda") for _ in range(3))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        x.add_(1)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.mul(a, 2, out=b)
        main.wait_stream(side)
    graph.replay()
    graph.replay()
    return x


def test_what_only_the_capture_needs_is_not_redundant() -> None:
    """No byte depends on the order; without the calls CUDA refuses the capture."""
    proof = redgreen.prove(unread_branch)
    assert {verdict for _, verdict in verdicts(proof)} == {"load-bearing"}
    assert all(edge.reason.startswith("raised: AcceleratorError: CUDA error") and not edge.guards
               for edge in proof.edges)  # fmt: skip


def doubled() -> torch.Tensor:
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    a, b = (torch.zeros(N, device="cuda") for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        a.add_(1)
        ready.record()
        side.wait_event(ready)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            b.copy_(a)
        main.wait_stream(side)
    graph.replay()
    return b


def test_two_dependencies_that_cover_each_other_are_masked() -> None:
    found = dict(verdicts(redgreen.prove(doubled)))
    assert found["side.wait_event(ready)"] == found["side.wait_stream(main)"] == "masked"
    assert found["main.wait_stream(side)"] == "load-bearing"


def same_stream() -> torch.Tensor:
    a = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        a.mul_(3)
        a.add_(2)
    graph.replay()
    graph.replay()
    return a


def test_order_within_a_stream_of_a_graph_is_no_edge() -> None:
    proof = redgreen.prove(same_stream)
    assert proof.green.verdict == "proved" and proof.edges == ()
    assert proof.green.outcomes == 1


def warmed_up() -> torch.Tensor:
    """The same lines run before the capture, where a cut is the call left out."""
    side, main = torch.cuda.Stream(), torch.cuda.Stream()
    a, b = (torch.zeros(N, device="cuda") for _ in range(2))

    def work() -> None:
        a.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b.copy_(a)
        torch.cuda.current_stream().wait_stream(side)

    main.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(main):
        work()
    torch.cuda.current_stream().wait_stream(main)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=main):
        work()
    graph.replay()
    return b


def test_lines_that_run_inside_and_outside_of_a_capture() -> None:
    found = dict(verdicts(redgreen.prove(warmed_up)))
    assert found["side.wait_stream(torch.cuda.current_stream())"] == "load-bearing"


def shared_pool(joined: bool) -> torch.Tensor:
    """The second capture takes the block that the first one freed; the replays are on streams."""
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    x, out = torch.ones(N, device="cuda"), torch.zeros(2, N, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first, stream=one):
        torch.mul(x + 1, 2, out=out[0])
    with torch.cuda.graph(second, stream=one, pool=first.pool()):
        torch.mul(x + 5, 3, out=out[1])
    with torch.cuda.stream(one):
        first.replay()
    if joined:
        two.wait_stream(one)
    with torch.cuda.stream(two):
        second.replay()
    for stream in (one, two):
        torch.cuda.current_stream().wait_stream(stream)
    return out


def test_replays_of_graphs_that_share_a_pool_need_an_order() -> None:
    assert redgreen.prove(shared_pool, True).green.verdict == "proved"
    refuted = redgreen.prove(shared_pool, False)
    assert refuted.green.verdict == "refuted"
    assert "UAF" in {race.hazard for race in refuted.green.races}


def graphed() -> list[torch.Tensor]:
    layer, seen = torch.nn.Linear(4, 4, bias=False).cuda(), []
    torch.nn.init.constant_(layer.weight, 1.0)
    call = torch.cuda.make_graphed_callables(layer, (torch.zeros(2, 4, device="cuda"),))
    for i in range(3):
        layer.weight.grad = None
        out = call(torch.full((2, 4), float(i + 1), device="cuda"))
        out.sum().backward()
        assert layer.weight.grad is not None
        seen += [out.detach().clone(), layer.weight.grad.clone()]
    return seen


def eager() -> list[torch.Tensor]:
    layer, seen = torch.nn.Linear(4, 4, bias=False), []
    torch.nn.init.constant_(layer.weight, 1.0)
    for i in range(3):
        layer.weight.grad = None
        out = layer(torch.full((2, 4), float(i + 1)))
        out.sum().backward()
        assert layer.weight.grad is not None
        seen += [out.detach().clone(), layer.weight.grad.clone()]
    return seen


@pytest.mark.slow  # 16 s
def test_graphed_callables_are_proved_against_eager() -> None:
    proof = redgreen.prove(graphed, reference=eager)
    assert (proof.green.verdict, proof.green.reference) == ("proved", "identical")


def test_graphed_callables_overwrite_their_static_output() -> None:
    def kept() -> list[torch.Tensor]:
        call = torch.cuda.make_graphed_callables(
            torch.nn.Linear(4, 4).cuda(), (torch.zeros(2, 4, device="cuda"),))
        with torch.no_grad():
            return [call(torch.full((2, 4), float(i), device="cuda")) for i in range(2)]

    for _ in range(2):  # the second virtual GPU has capture streams of its own
        with redgreen.installed():
            first, second = (out.cpu() for out in kept())
        assert torch.equal(first, second)


def handle() -> torch.Tensor:
    a, graph = torch.zeros(N, device="cuda"), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        a.add_(1)
    try:
        graph.raw_cuda_graph()
    except NotImplementedError as error:
        assert "raw_cuda_graph: the virtual GPU has no graphs of CUDA's" in str(error)
    graph.instantiate()
    graph.replay()
    return a


def test_a_raw_handle_is_refused_and_the_refusal_is_remembered() -> None:
    proof = redgreen.prove(handle)
    assert proof.green.verdict == "inconclusive"
    assert "refused: CUDAGraph.raw_cuda_graph: whoever has" in proof.diagnostics[0].message
