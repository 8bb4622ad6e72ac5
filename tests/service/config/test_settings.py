"""Settings that would not do what their operator means are refused when the server starts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from service.config.keys import new_secret
from service.config.settings import Settings


@pytest.mark.parametrize("content", ["", "# alice:secret\n", "\n  # nobody yet\n,\n"])
def test_a_key_file_without_a_key_opens_the_server_to_nobody(tmp_path, content):
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(ValidationError, match="holds no key"):
        Settings(api_keys_file=path)
    with pytest.raises(ValidationError, match="holds no key"):
        Settings(api_keys_file=path, api_keys=f"bob:{new_secret()}")


@pytest.mark.parametrize("listed", ["#", " # alice:secret", ","])
def test_a_list_of_keys_without_a_key_is_refused(listed):
    with pytest.raises(ValidationError, match="holds no key"):
        Settings(api_keys=listed)


def test_no_keys_at_all_are_a_choice(tmp_path):
    assert Settings().keyring.anonymous is not None
    path = tmp_path / "keys"
    path.write_text(f"# the first\nalice:{new_secret()}\n")
    assert Settings(api_keys_file=path).keyring.anonymous is None


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_refused(host):
    """Sockets take it for every address of the machine."""
    with pytest.raises(ValidationError, match="every address"):
        Settings(host=host)


def test_a_folder_of_gates_must_be_there(tmp_path):
    assert Settings(gates=tmp_path).gates == tmp_path
    (tmp_path / "file").write_text("")
    for missing in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(ValidationError, match="is no folder"):
            Settings(gates=missing)
