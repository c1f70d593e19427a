"""What is left out: operators, derivatives and indices, with the reasons."""

from __future__ import annotations

_NO_FUNCTION = "a special function that JAX does not have"
_FORM = "a decomposition that JAX does not have"

REST: dict[str, str] = {
    **dict.fromkeys(
        (
            "special.airy_ai",
            "special.bessel_j0",
            "special.bessel_j1",
            "special.bessel_y0",
            "special.bessel_y1",
            "special.chebyshev_polynomial_t",
            "special.chebyshev_polynomial_u",
            "special.chebyshev_polynomial_v",
            "special.chebyshev_polynomial_w",
            "special.hermite_polynomial_h",
            "special.hermite_polynomial_he",
            "special.laguerre_polynomial_l",
            "special.legendre_polynomial_p",
            "special.modified_bessel_k0",
            "special.modified_bessel_k1",
            "special.scaled_modified_bessel_k0",
            "special.scaled_modified_bessel_k1",
            "special.shifted_chebyshev_polynomial_t",
            "special.shifted_chebyshev_polynomial_u",
            "special.shifted_chebyshev_polynomial_v",
            "special.shifted_chebyshev_polynomial_w",
        ),
        _NO_FUNCTION,
    ),
    "geqrf": _FORM,
    "linalg.ldl_factor": _FORM,
    "linalg.ldl_factor_ex": _FORM,
    "linalg.ldl_solve": _FORM,
    "chalf": "complex numbers of 32 bits, which JAX does not have",
}
"""By their names in the database. They are counted apart."""

NO_DERIVATIVE = frozenset({"as_strided_scatter"})
"""PyTorch's derivative fails PyTorch's own test of it: the database expects that."""

ANY_OF_EQUALS = frozenset({"argsort", "kthvalue", "sort", "topk"})
"""Which of equal numbers they give the index of, PyTorch leaves open, unless it is
told to be stable; integers often are equal."""
