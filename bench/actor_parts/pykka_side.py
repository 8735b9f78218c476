"""Asks of Pykka's actors: CALLS CALLERS ACTORS. Run by the Python that has Pykka.

Each actor is a thread; pipelined, one thread has CALLERS futures in flight.
"""

import json
import sys
import time
from collections import deque
from typing import Any

import pykka  # type: ignore[import-not-found,unused-ignore]


class Counter(pykka.ThreadingActor):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def add(self, number: int) -> int:
        self.number += number
        return self.number


def main(calls: int, callers: int, actors: int) -> None:
    counters = [Counter.start().proxy() for _ in range(actors)]
    asks(counters, max(actors, callers), callers)
    began, cpu = time.perf_counter(), time.process_time()
    asks(counters, calls, callers)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"per_second": calls / seconds, "cpu": cpu / calls * 1e6}), flush=True)
    pykka.ActorRegistry.stop_all()


def asks(counters: list[Any], calls: int, callers: int) -> None:
    waiting: deque[Any] = deque()
    for number in range(calls):
        if len(waiting) == callers:
            waiting.popleft().get()
        waiting.append(counters[number % len(counters)].add(1))
    while waiting:
        waiting.popleft().get()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
