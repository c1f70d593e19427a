"""The models whose rows are validated, plain and small; modelling speed is measured with them."""
