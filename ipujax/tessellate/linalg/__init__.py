"""Linear algebra on tiles."""

from __future__ import annotations

from ipujax.tessellate.linalg import tile_linalg_hessenberg as tile_linalg_hessenberg
from ipujax.tessellate.linalg import tile_linalg_jacobi as tile_linalg_jacobi
from ipujax.tessellate.linalg import tile_linalg_qr as tile_linalg_qr
from ipujax.tessellate.linalg.tile_linalg_hessenberg import ipu_hessenberg as ipu_hessenberg
from ipujax.tessellate.linalg.tile_linalg_jacobi import ipu_eigh as ipu_eigh
from ipujax.tessellate.linalg.tile_linalg_qr import ipu_qr as ipu_qr
