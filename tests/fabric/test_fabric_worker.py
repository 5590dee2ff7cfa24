"""A thread with a bounded queue: what it refuses and what it survives."""

from __future__ import annotations

import threading

import pytest

from forebay.fabric.worker import Worker


def test_at_the_bound_it_refuses_and_what_was_taken_is_done() -> None:
    busy, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def handle(job: int) -> None:
        busy.set()
        go_on.wait()
        done.append(job)

    worker = Worker("test", handle, 1)
    assert worker.offer(1)
    busy.wait()
    assert worker.offer(2)
    assert not worker.offer(3)
    assert worker.waiting == 1
    go_on.set()
    worker.close()
    assert done == [1, 2]


def test_a_job_that_fails_ends_that_job_only(caplog: pytest.LogCaptureFixture) -> None:
    done: list[float] = []
    worker: Worker[int] = Worker("test", lambda job: done.append(1 / job), 4)
    for job in (1, 0, 2):
        assert worker.offer(job)
    worker.close()
    assert done == [1.0, 0.5]
    assert "a job of forebay-test failed" in caplog.text
