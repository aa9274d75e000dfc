"""Why a model was not rewired."""


class RewireError(ValueError):
    """A model that cannot be rewired as is wanted; the message says which part stops it."""


class UnfitError(RewireError):
    """A placement of another kind of layer or model: its formula has other sublayers, or depths of two sides."""
