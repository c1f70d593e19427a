"""Minimum cuts of networks: the cheapest nodes without which no source reaches a sink.

By maximum flow (Dinic, 1970): the arcs that a maximum flow fills, and that lead to where the sink
can still be reached, are a minimum cut. Of all minimum cuts it is the one closest to the sink.
"""

from __future__ import annotations

from collections import deque

UNBOUNDED = 1 << 62


class Network:
    """Arcs with capacities between nodes that are numbered from 0.

    Arc `i` and its reverse `i ^ 1` share their capacity: flow along one frees the other.
    """

    def __init__(self) -> None:
        self._arcs: list[list[int]] = []
        self._heads: list[int] = []
        self._left: list[int] = []

    def node(self) -> int:
        """A new node."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> None:
        """A new arc."""
        for start, end, room in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[start].append(len(self._heads))
            self._heads.append(end)
            self._left.append(room)

    def sink_side(self, source: int, sink: int) -> set[int]:
        """The nodes behind the minimum cut that is closest to the sink; uses the network up."""
        while True:
            levels = self._levels(sink)
            if source not in levels:
                return set(levels)
            tried = [0] * len(self._arcs)
            while self._augmented(source, sink, levels, tried):
                pass

    def _levels(self, sink: int) -> dict[int, int]:
        """How many arcs with room there are from each node to the sink, where it is reached."""
        levels, waiting = {sink: 0}, deque([sink])
        while waiting:
            head = waiting.popleft()
            for arc in self._arcs[head]:
                tail = self._heads[arc]
                if self._left[arc ^ 1] and tail not in levels:
                    levels[tail] = levels[head] + 1
                    waiting.append(tail)
        return levels

    def _augmented(self, source: int, sink: int, levels: dict[int, int], tried: list[int]) -> bool:
        """Sends what one more shortest path takes; whether there was one."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = self._arcs[node]
            if tried[node] == len(arcs):
                if not path:
                    return False
                node = self._heads[path.pop() ^ 1]
                tried[node] += 1
                continue
            arc = arcs[tried[node]]
            head = self._heads[arc]
            if self._left[arc] and levels.get(head) == levels[node] - 1:
                path.append(arc)
                node = head
            else:
                tried[node] += 1
        flow = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= flow
            self._left[arc ^ 1] += flow
        return True
