from __future__ import annotations

import os
import signal

import pytest

from tests.child import ChildFailure, in_child


def test_returns_what_the_child_returned() -> None:
    assert in_child(lambda: {"pid": os.getppid()}) == {"pid": os.getpid()}


def test_a_failure_comes_back_with_its_traceback() -> None:
    def broken() -> None:
        raise KeyError("the reason")

    with pytest.raises(ChildFailure, match=r"(?s)in broken.*KeyError: 'the reason'"):
        in_child(broken)


def test_a_killed_child_is_a_failure() -> None:
    with pytest.raises(ChildFailure, match="status -9"):
        in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_a_hanging_child_is_ended() -> None:
    with pytest.raises(ChildFailure, match="status 1"):
        in_child(lambda: signal.pause(), limit=0.1)


def test_a_result_that_does_not_pickle_is_a_failure() -> None:
    with pytest.raises(ChildFailure, match="pickle"):
        in_child(lambda: lambda: None)


def test_a_grandchild_that_lives_on_does_not_hang_the_parent() -> None:
    end_read, end_write = os.pipe()

    def leave_a_grandchild() -> None:
        if os.fork() == 0:
            os.close(end_write)
            os.read(end_read, 1)  # returns when the test closes its end
            os._exit(0)
        os._exit(3)

    with pytest.raises(ChildFailure, match="status 3"):
        in_child(leave_a_grandchild)
    os.close(end_write)
    os.close(end_read)


def test_a_skip_in_the_child_skips() -> None:
    with pytest.raises(pytest.skip.Exception, match="not here"):
        in_child(lambda: pytest.skip("not here"))
