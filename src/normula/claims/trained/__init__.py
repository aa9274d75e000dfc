"""The claims that need training: one file each, its name the claim's."""
