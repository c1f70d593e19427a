from .driver.ipu_compiler import compile as compile
