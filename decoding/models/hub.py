"""Checkpoint folders from the Hugging Face hub: data files only, never code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from decoding.models.checkpoint import CheckpointError

FILES: Final = ("*.safetensors", "*.json", "*.jinja", "merges.txt")
"""What is downloaded: weights, configuration and tokenizer."""
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w.-]+)?", re.ASCII)


def is_hub_id(name: str) -> bool:
    """Whether `name` reads as `owner/name[@revision]` and is no local folder."""
    return not Path(name).is_dir() and _HUB_ID.fullmatch(name) is not None and not name.startswith(".")


def local_folder(name_or_path: str) -> Path:
    """The folder of a model: a local one as it is, a hub id after its download (cached by huggingface_hub).

    Raises `CheckpointError` where the download fails and no complete cached copy exists.
    """
    if not is_hub_id(name_or_path):
        return Path(name_or_path)
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (half a second that a local folder does not need)
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    repository, _, revision = name_or_path.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES)))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{name_or_path!r} is neither a local folder nor could it be downloaded from the hub ({reason}); "
            "without network, pass the path of a folder with config.json, the tokenizer and the safetensors files"
        ) from error
