"""The front ends, each in a room of its own, and what several of them share."""
