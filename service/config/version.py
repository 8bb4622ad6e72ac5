"""The version of the installed distribution, for the API, the metrics and the command line."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Its version; "unknown" where the code runs without having been installed."""
    try:
        return version("astargate")
    except PackageNotFoundError:
        return "unknown"
