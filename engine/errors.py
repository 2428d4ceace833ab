"""What the engine raises. Each message names the value that was wrong and what would be right."""


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class ConfigError(EngineError):
    """A flag or a setting has a value that it cannot have."""


class CheckpointError(EngineError):
    """A model directory is not a checkpoint of an architecture that the engine runs."""


class RequestError(EngineError):
    """A request cannot be served; other requests are unharmed."""


class DeviceStateError(EngineError):
    """A step was about to compute with values that are not there yet."""
