"""A differential fuzzer: random JAX programs, compiled by both engines, against `jax.jit`.

A program is data (`source`), which prints as Python that runs on its own. `generate` makes program
number i of a seed from the grammar: `values` says what may be read where, `operations`,
`control_flow`, `transforms`, `effects`, `refs` and `queues` what may be written, and `marks` deals
the statements out to IPUs. `run` compiles and compares (`compare`), `shrink` drops what a failure
does not need. `python -m tests.fuzz --help` is the command line.
"""
