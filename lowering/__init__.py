"""The compiler of ipujax: a jaxpr in, a Program for virtual IPUs out.

Pure functions on frozen data: no devices, no files, no environment, no global state. The order
of the passes is `lowering.lower`; the Program is `lowering.ir.program`.
"""
