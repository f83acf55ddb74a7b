"""A PostgreSQL of one's own, for checks of what servers share."""

import glob
import os
import pathlib
import pwd
import subprocess

from serving import free_port


class Postgres:
    """Debian's PostgreSQL on a free loopback port, in a folder of its own."""

    def __init__(self, folder):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        self.programs = pathlib.Path(found[-1]).parent if found else None
        self.data, self.port = pathlib.Path(folder, "data"), free_port()
        self.url = f"postgres://sconce@127.0.0.1:{self.port}/postgres"
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.programs and self.user:
            os.chown(folder, pwd.getpwnam(self.user).pw_uid, -1)

    def run(self, program, *arguments):
        command = [str(self.programs / program), "-D", str(self.data), *arguments]
        subprocess.run(command, check=True, user=self.user, stdout=subprocess.DEVNULL)

    def init(self):
        self.run("initdb", "-A", "trust", "-U", "sconce")
        self.start()

    def start(self):
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.data}"
        self.run("pg_ctl", "-o", options, "-l", str(self.data / "log"), "-w", "start")

    def stop(self):
        self.run("pg_ctl", "-m", "immediate", "-w", "stop")
