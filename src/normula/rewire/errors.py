"""Why a model was not rewired."""


class RewireError(ValueError):
    """A model that cannot be rewired as is wanted; the message says which part stops it."""
