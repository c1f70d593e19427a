"""Minimum cuts of networks: the cheapest nodes that separate a source from a sink.

They are found by maximum flow (Dinic, 1970): the full arcs that lead to nodes from which the sink
can still be reached are a minimum cut. Of all minimum cuts it is the one closest to the sink.
"""

from __future__ import annotations

from collections import deque

UNBOUNDED = 1 << 62


class Network:
    """A network of arcs with capacities between nodes that are numbered from 0.

    Arc `i` and its reverse `i ^ 1` share their capacity: flow along one frees the other.
    """

    def __init__(self) -> None:
        self._arcs: list[list[int]] = []
        self._heads: list[int] = []
        self._left: list[int] = []

    def add_network_node(self) -> int:
        """Adds a node and returns its number."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def add_arc(self, tail: int, head: int, capacity: int) -> None:
        """Adds an arc."""
        for start, end, room in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[start].append(len(self._heads))
            self._heads.append(end)
            self._left.append(room)

    def nodes_behind_minimum_cut(self, source: int, sink: int) -> set[int]:
        """Returns the nodes behind the minimum cut closest to the sink; uses the network up."""
        while True:
            distances = self._distances_to_sink(sink)
            if source not in distances:
                return set(distances)
            num_tried_arcs = [0] * len(self._arcs)
            while self._send_flow_along_shortest_path(source, sink, distances, num_tried_arcs):
                pass

    def _distances_to_sink(self, sink: int) -> dict[int, int]:
        """Returns the number of arcs with free capacity from each node to the sink."""
        distances, waiting = {sink: 0}, deque([sink])
        while waiting:
            head = waiting.popleft()
            for arc in self._arcs[head]:
                tail = self._heads[arc]
                if self._left[arc ^ 1] and tail not in distances:
                    distances[tail] = distances[head] + 1
                    waiting.append(tail)
        return distances

    def _send_flow_along_shortest_path(
        self, source: int, sink: int, distances: dict[int, int], num_tried_arcs: list[int]
    ) -> bool:
        """Sends flow along one more shortest path; returns whether there was one."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = self._arcs[node]
            if num_tried_arcs[node] == len(arcs):
                if not path:
                    return False
                node = self._heads[path.pop() ^ 1]
                num_tried_arcs[node] += 1
                continue
            arc = arcs[num_tried_arcs[node]]
            head = self._heads[arc]
            if self._left[arc] and distances.get(head) == distances[node] - 1:
                path.append(arc)
                node = head
            else:
                num_tried_arcs[node] += 1
        flow = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= flow
            self._left[arc ^ 1] += flow
        return True
