"""The claims: one file each, its name the claim's."""
