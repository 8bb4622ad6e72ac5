"""A real PostgreSQL server in a temporary folder, on a port of its own."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.service.process import free_port

FOLDERS = "/usr/lib/postgresql"
"""Where Debian keeps the programs, a folder a version; elsewhere they are on the PATH."""


def programs() -> Path | None:
    """Folder of initdb and pg_ctl, of the newest version; None where PostgreSQL is not installed."""
    folders = [path.parent for path in Path(FOLDERS).glob("*/bin/initdb")]
    if folders:
        return max(folders, key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


def unavailable(reason: str) -> None:
    """Skip, or fail where the whole check must run."""
    if os.environ.get("ASTARGATE_CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresServer:
    """Runs as its own user where the tests run as root, which PostgreSQL refuses."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder
        self.home = Path(tempfile.mkdtemp(prefix="astargate-postgres-"))
        self.port = free_port()
        self._as: list[str] = []
        self.user = getpass.getuser()
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            self._as, self.user = ["runuser", "-u", account.pw_name, "--"], account.pw_name
            os.chown(self.home, account.pw_uid, account.pw_gid)
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-E", "UTF8", "--no-sync")
        self.resume()

    @property
    def data(self) -> Path:
        return self.home / "data"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._programs / program), *arguments]
        done = subprocess.run(
            command, cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def create(self) -> str:
        """URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), name)
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{name}"

    def pause(self) -> None:
        """Stop it at once, connections and all."""
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def resume(self) -> None:
        """Start it (again)."""
        options = f"-p {self.port} -k {self.home} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self.data), "-l", str(self.home / "log"), "-o", options, "-w", "start")

    def _processes(self) -> list[int]:
        """The server's own process and those that it has started."""
        main = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        return [main, *(process for process, parent in parents.items() if parent == main)]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Its processes are stopped, not ended: connections stay open and nothing answers."""
        stopped = self._processes()
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def close(self) -> None:
        self.pause()
        shutil.rmtree(self.home)
